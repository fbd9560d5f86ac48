"""What a person is asked, on what evidence, and what was answered: signed, and bound to that evidence's digest."""
