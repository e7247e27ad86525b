// SPDX-License-Identifier: Apache-2.0

// Package image writes container images as docker-archive files, which `ctr images import`, `docker
// load` and registry clients take. The same input gives the same bytes: no clock and no user of the
// machine goes in.
package image

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"coelan.io/coelan/internal/statefile"
)

// Image is what an archive holds.
type Image struct {
	// Tag is its name, such as "coelan.io/coelan:v0.1.0".
	Tag string
	// Base is a tar (or tar.gz) of a root file system below Files; empty for none.
	Base string
	// Files are the top layer.
	Files []File
	// Entrypoint, Cmd, Env ("NAME=value") and Labels as in the image's configuration.
	Entrypoint, Cmd, Env []string
	Labels               map[string]string
}

// Write makes the archive at path, which is replaced only by a complete one.
func (i Image) Write(path string) error {
	if err := i.write(path); err != nil {
		return fmt.Errorf("image %s: %w", i.Tag, err)
	}
	return nil
}

func (i Image) write(path string) error {
	img, err := i.build()
	if err != nil {
		return err
	}
	tag, err := name.NewTag(i.Tag, name.StrictValidation)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return statefile.WriteMode(path, 0o644, func(f *os.File) error { return tarball.Write(tag, img, f) })
}

func (i Image) build() (v1.Image, error) {
	var layers []v1.Layer
	if i.Base != "" {
		base, err := tarball.LayerFromFile(i.Base, tarball.WithCompressedCaching)
		if err != nil {
			return nil, fmt.Errorf("base: %w", err)
		}
		layers = append(layers, base)
	}
	open := func() (io.ReadCloser, error) { return stream(i.Files), nil }
	top, err := tarball.LayerFromOpener(open, tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, append(layers, top)...)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config.Entrypoint, config.Config.Cmd = i.Entrypoint, i.Cmd
	config.Config.Env, config.Config.Labels = i.Env, i.Labels
	return mutate.ConfigFile(img, config)
}
