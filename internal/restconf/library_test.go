// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLibrary compares what the library says of modules with the folder of the models.
func TestLibrary(t *testing.T) {
	files, err := filepath.Glob("../../yang/*.yang")
	if err != nil || len(files) != len(models)+len(imported) {
		t.Errorf("%d models of %d files: %v", len(models)+len(imported), len(files), err)
	}
	for _, m := range slices.Concat(models, imported) {
		text, err := os.ReadFile("../../yang/" + m.name + ".yang")
		if err != nil {
			t.Error(err)
			continue
		}
		for _, want := range []string{"module " + m.name + " {", `namespace "` + m.namespace + `";`, "revision " + m.revision + " {"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s has no %s", m.name, want)
			}
		}
	}
}
