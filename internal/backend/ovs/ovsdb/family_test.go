// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"errors"
	"io/fs"
	"testing"
)

func TestAskFamily(t *testing.T) {
	if err := askFamily("nlctrl"); err != nil {
		t.Errorf("the family that every kernel has: %v", err)
	}
	if err := askFamily("coelan_none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a family that no kernel has: %v", err)
	}
}
