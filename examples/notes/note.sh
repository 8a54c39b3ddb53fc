#!/bin/sh
# Appends the prompt to the notes and prints them all. Any program can be an agent: input on stdin, output on stdout.
set -eu
cat >>notes.md
printf '\n' >>notes.md
cat notes.md
