"""What is asked of a lab, cell by cell, and what the answers mean."""
