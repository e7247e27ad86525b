// SPDX-License-Identifier: Apache-2.0

// Package statefile replaces files such that a crash or a power loss leaves either the old content
// or the new one.
package statefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// suffix is that of a file that is not whole yet.
const suffix = ".new"

// private lets only the file's owner read it.
const private = 0o600

// Write has a file hold what content writes; only its owner may read it. Either it stays as it was,
// or the new content is whole and on the disk.
func Write(path string, content func(*os.File) error) error { return WriteMode(path, private, content) }

// WriteMode is Write for a file of a mode, whatever the umask.
func WriteMode(path string, mode os.FileMode, content func(*os.File) error) error {
	f, err := replace(path, mode, content)
	if f != nil {
		err = errors.Join(err, f.Close())
	}
	return err
}

// WriteBytes is WriteMode for content that is in memory.
func WriteBytes(path string, mode os.FileMode, content []byte) error {
	return WriteMode(path, mode, func(f *os.File) error {
		_, err := f.Write(content)
		return err
	})
}

// Replace is Write for a file to which more is going to be appended: it returns the new file, open
// for reading and appending. It is nil if the old file stays. One that comes with an error has
// taken the place of the old file, but a power loss may still bring that back.
func Replace(path string, content func(*os.File) error) (*os.File, error) {
	return replace(path, private, content)
}

func replace(path string, mode os.FileMode, content func(*os.File) error) (*os.File, error) {
	f, err := os.OpenFile(path+suffix, os.O_CREATE|os.O_TRUNC|os.O_RDWR|os.O_APPEND, mode)
	if err != nil {
		return nil, err
	}
	// The mode of a file that was there, or that the umask has cut.
	if err = f.Chmod(mode); err == nil {
		err = content(f)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(f.Name(), path) //nolint:forbidigo // this is what statefile is for
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return f, syncDir(path)
}

// Remove removes a file, from the disk too, and what is left of a Write that was cut off.
// None is no error.
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
