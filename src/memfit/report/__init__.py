"""What people see: terminal, JSON, HTML. Reporters never compute."""
