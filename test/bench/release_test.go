// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestExtract(t *testing.T) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, name := range []string{"usr/bin/", "usr/bin/coelan", "usr/bin/coelan-agent"} {
		h := &tar.Header{Name: name, Mode: 0o755, Size: int64(len(name)), Typeflag: tar.TypeReg}
		if name == "usr/bin/" {
			h.Size, h.Typeflag = 0, tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte(name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	files := func() *tar.Reader { return tar.NewReader(bytes.NewReader(archive.Bytes())) }
	dir := t.TempDir()
	if err := extract(files(), dir, "coelan-agent"); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "coelan-agent")); err != nil || string(text) != "usr/bin/coelan-agent" {
		t.Errorf("coelan-agent is %q, %v", text, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
	if err := extract(files(), dir, "coelan-agent", "coelan-cni"); err == nil {
		t.Error("no error, although coelan-cni is missing")
	}
}
