"""What is held against what before anything is published."""
