"""Who may use topics and groups: the source's ACLs, as the target gets them."""
