"""The course: lessons with pictures, predictions and exercises, in a browser and in the terminal."""
