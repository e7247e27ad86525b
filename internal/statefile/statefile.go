// SPDX-License-Identifier: Apache-2.0

// Package statefile writes files anew that have to be whole after a crash, too.
package statefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// suffix is that of a file that is not whole yet.
const suffix = ".new"

// Write has a file hold what content writes; only its owner may read it. Either it stays as it was, or the new content is
// whole and on the disk.
func Write(path string, content func(*os.File) error) error {
	const readable = 0o600
	f, err := os.OpenFile(path+suffix, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, readable)
	if err != nil {
		return err
	}
	if err = content(f); err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	return syncDir(path)
}

// Remove removes a file, from the disk too, and what is left of a Write that was cut off. None is no error.
func Remove(path string) error {
	var errs []error
	removed := false
	for _, name := range []string{path, path + suffix} {
		err := os.Remove(name)
		removed = removed || err == nil
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if removed {
		errs = append(errs, syncDir(path))
	}
	return errors.Join(errs...)
}

// syncDir has the name of a file, or that there is none, on the disk.
func syncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
