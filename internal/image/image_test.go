// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// write makes a file with a time and a mode that differ from one call to the next.
func write(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Time{}, time.Unix(int64(mode), 0)); err != nil {
		t.Fatal(err)
	}
	return path
}

// contents lists a layer as "mode path [-> target] [content]".
func contents(t *testing.T, layer v1.Layer) []string {
	t.Helper()
	r, err := layer.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var list []string
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, strings.Join(strings.Fields(fmt.Sprintf("%o %s %s %s", h.Mode, h.Name, h.Linkname, data)), " "))
	}
}

func TestWrite(t *testing.T) {
	image := func(mode os.FileMode) Image {
		return Image{
			Tag: "coelan.io/coelan:v1",
			Files: []File{
				{Path: "/usr/bin/tool", Source: write(t, "binary", mode)},
				{Path: "/etc/secret", Content: "text", Mode: 0o600},
				{Path: "/usr/bin/alias", Link: "tool"},
			},
			Entrypoint: []string{"/usr/bin/tool"},
			Env:        []string{"PATH=/usr/bin"},
		}
	}
	first, second := filepath.Join(t.TempDir(), "a", "one.tar"), filepath.Join(t.TempDir(), "two.tar")
	if err := image(0o600).Write(first); err != nil {
		t.Fatal(err)
	}
	if err := image(0o755).Write(second); err != nil {
		t.Fatal(err)
	}

	a, b := read(t, first), read(t, second)
	if a != b {
		t.Error("the same files gave two different archives")
	}
	tag := name.MustParseReference("coelan.io/coelan:v1").(name.Tag)
	img, err := tarball.ImageFromPath(first, &tag)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/usr/bin/tool"}, config.Config.Entrypoint); diff != "" {
		t.Errorf("entry point (-want +got):\n%s", diff)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"755 etc/", "600 etc/secret text", "755 usr/", "755 usr/bin/",
		"777 usr/bin/alias tool", "755 usr/bin/tool binary",
	}
	if diff := cmp.Diff(want, contents(t, layers[0])); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestWriteOnBase(t *testing.T) {
	base := filepath.Join(t.TempDir(), "base.tar")
	f, err := os.Create(base)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeLayer(f, []File{{Path: "/bin/sh", Content: "shell"}}); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out.tar")
	i := Image{Tag: "example.org/x:1", Base: base, Files: []File{{Path: "/app", Content: "app"}}}
	if err := i.Write(out); err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(out, nil)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range layers {
		got = append(got, contents(t, l)...)
	}
	if diff := cmp.Diff([]string{"755 bin/", "755 bin/sh shell", "755 app app"}, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestWriteFails(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	tests := map[string]struct {
		image Image
		want  string
	}{
		"missing source": {Image{Tag: "example.org/x:1", Files: []File{{Path: "/x", Source: missing}}}, missing},
		"missing base":   {Image{Tag: "example.org/x:1", Base: missing}, "base: "},
		"malformed tag":  {Image{Tag: "no tag"}, "no tag"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out.tar")
			err := tc.image.Write(out)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one that says %q", err, tc.want)
			}
			left, err := os.ReadDir(filepath.Dir(out))
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %v %v", left, err)
			}
		})
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
