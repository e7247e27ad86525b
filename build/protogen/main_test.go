// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

const root = "../.."

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	files, err := generate(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what its .proto gives: run `make generate`", name)
		}
	}
	if len(files) != len(sources)*len(plugins) {
		t.Errorf("%d files of %d sources by %d plugins", len(files), len(sources), len(plugins))
	}
}
