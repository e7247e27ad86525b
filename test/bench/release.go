// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// olderImage is that of the release which TestUpgrade begins with.
const olderImage = "bin/upgrade/coelan.tar"

// olderBinaries takes the programs of a node out of it, into a directory that lasts
// until remove is called.
func olderBinaries() (dir string, remove func(), err error) {
	if _, err := os.Stat(olderImage); errors.Is(err, fs.ErrNotExist) {
		return "", nil, fmt.Errorf("%w: `make upgrade-images` builds it", err)
	}
	image, err := tarball.ImageFromPath(olderImage, nil)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", olderImage, err)
	}
	if dir, err = os.MkdirTemp("", "older"); err != nil {
		return "", nil, err
	}
	files := mutate.Extract(image)
	defer files.Close()
	if err := extract(tar.NewReader(files), dir, "coelan-agent", "coelan-cni"); err != nil {
		os.RemoveAll(dir)
		return "", nil, fmt.Errorf("%s: %w", olderImage, err)
	}
	return dir, func() { os.RemoveAll(dir) }, nil
}

// extract writes files of these names to a directory, as programs.
func extract(files *tar.Reader, dir string, names ...string) error {
	missing := map[string]bool{}
	for _, name := range names {
		missing[name] = true
	}
	for len(missing) > 0 {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("programs are missing: %v", missing)
		}
		if err != nil {
			return err
		}
		name := path.Base(h.Name)
		if h.Typeflag != tar.TypeReg || !missing[name] {
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY, 0o755)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, files) //nolint:gosec // an image of this project's
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		delete(missing, name)
	}
	return nil
}
