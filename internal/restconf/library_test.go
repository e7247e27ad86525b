// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLibrary compares what the library says of modules with the folder of the models.
func TestLibrary(t *testing.T) {
	files, err := filepath.Glob("../../yang/*.yang")
	if err != nil || len(files) != len(models)+1 {
		t.Errorf("%d models of %d files: %v", len(models)+1, len(files), err)
	}
	for _, m := range append(models[:len(models):len(models)], sharedTypes) {
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
