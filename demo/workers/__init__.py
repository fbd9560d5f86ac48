"""What is copied to where the demo from the wheel runs."""
