"""The screens and dialogs. A dialog is typed by the decision that it returns."""
