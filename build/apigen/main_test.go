// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

const root = "../.."

func TestGeneratedFilesAreCurrent(t *testing.T) {
	files, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 2 {
		t.Fatalf("%d files, want the functions and a definition for each type", len(files))
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the types give: run `make generate`", name)
		}
	}
	there, err := filepath.Glob(filepath.Join(root, crds, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range there {
		if _, ok := files[filepath.Join(crds, filepath.Base(path))]; !ok {
			t.Errorf("%s is of no type of the API", path)
		}
	}
}
