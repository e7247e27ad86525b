// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"coelan.io/coelan/internal/cni/wire"
)

// links are the other names of the plugin.
func links() []string { return append(append([]string{}, wire.Types[1:]...), wire.IPAMPlugin) }

// link makes the plugin's other names links to it. What has one of these names and is not ours
// stays, and is a warning.
func (p Paths) link() (warnings []string, err error) {
	for _, name := range links() {
		path := filepath.Join(p.BinDir, name)
		err := os.Symlink(BinaryName, path)
		if err == nil || !errors.Is(err, fs.ErrExist) {
			if err != nil {
				return warnings, err
			}
			continue
		}
		switch ours, err := p.isOurLink(path); {
		case err != nil:
			return warnings, fmt.Errorf("%s: %w", path, err)
		case !ours:
			warnings = append(warnings, fmt.Sprintf("%s is another plugin's: configurations of that name are not Coelan's", path))
		}
	}
	return warnings, nil
}

// isOurLink says whether a name leads to the plugin: by a link, or as a copy.
func (p Paths) isOurLink(path string) (bool, error) {
	to, err := os.Readlink(path)
	if err == nil && (to == BinaryName || filepath.Clean(to) == filepath.Clean(p.binary())) {
		return true, nil
	}
	ours, err := isOurBinary(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // a link that leads nowhere
	}
	return ours, err
}

// unlink removes the links that link made.
func (p Paths) unlink() error {
	var errs []error
	for _, name := range links() {
		path := filepath.Join(p.BinDir, name)
		if to, err := os.Readlink(path); err == nil && to == BinaryName {
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}
