// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"coelan.io/coelan/internal/image"
)

// Multus calls further CNI plugins for a pod, as annotations of the pod ask for. Sandboxes have it
// only if they are told to: the image and the manifests are upstream's.

const (
	multusModule = "gopkg.in/k8snetworkplumbingwg/multus-cni.v4"
	// multusImage is the name in upstream's manifests; what they call multusImage-thick
	// has the same content.
	multusImage = "ghcr.io/k8snetworkplumbingwg/multus-cni:snapshot"
	multusUsers = "root:x:0:0:root:/root:/sbin/nologin\n"
)

// multusPackages are the commands that upstream's image has, by the names of their packages.
var multusPackages = []string{
	multusModule + "/cmd/multus", multusModule + "/cmd/multus-shim", multusModule + "/cmd/multus-daemon",
	multusModule + "/cmd/install_multus", multusModule + "/cmd/thin_entrypoint", multusModule + "/cmd/passthru-cni",
}

// multusFiles are what a cluster needs to run Multus; the image is made.
var multusFiles = []struct{ name, file string }{
	{"thin.yaml", "deployments/multus-daemonset.yml"},
	{"thick.yaml", "deployments/multus-daemonset-thick.yml"},
}

func (c Cache) multusDir() string {
	return filepath.Join(c.Dir,
		"multus-files-"+key(MultusVersion, multusFiles, multusImage, multusUsers, multusPackages))
}

// MultusArchive is the docker-archive file of Multus's image.
func (c Cache) MultusArchive() string { return filepath.Join(c.multusDir(), "multus.tar") }

// MultusManifest is the path of one of upstream's manifests: "thin" and "thick" run Multus in that
// form, and define NetworkAttachmentDefinitions.
func (c Cache) MultusManifest(name string) string { return filepath.Join(c.multusDir(), name+".yaml") }

func (c Cache) multus(ctx context.Context) error {
	return c.make(filepath.Base(c.multusDir()), "make Multus's image", func(dir string) error {
		for _, f := range multusFiles {
			source, err := c.moduleFile(ctx, "multus", multusModule, f.file)
			if err != nil {
				return err
			}
			data, err := os.ReadFile(source)
			if err != nil {
				return fmt.Errorf("manifest of Multus: %w", err)
			}
			data = bytes.ReplaceAll(data, []byte(multusImage+"-thick"), []byte(multusImage))
			if err := os.WriteFile(filepath.Join(dir, f.name), data, 0o644); err != nil {
				return err
			}
		}
		return c.multusContent().Write(filepath.Join(dir, filepath.Base(c.MultusArchive())))
	})
}

// multusContent is the image as upstream's Dockerfile describes it.
func (c Cache) multusContent() image.Image {
	built := filepath.Join(c.Dir, versioned("multus", MultusVersion))
	i := image.Image{
		Tag: multusImage, Entrypoint: []string{"/thin_entrypoint"},
		// As in upstream's base image: the daemon looks up its user, and runtimes name network
		// namespaces below /var/run.
		Files: []image.File{{Path: "/etc/passwd", Content: multusUsers, Mode: 0o644},
			{Path: "/var/run", Link: "../run"}},
	}
	for _, p := range multusPackages {
		program := path.Base(p)
		place := "/usr/src/multus-cni/bin/" + strings.TrimSuffix(program, "-cni")
		i.Files = append(i.Files, image.File{Path: place, Source: filepath.Join(built, program)})
		if program == "install_multus" || program == "thin_entrypoint" {
			i.Files = append(i.Files, image.File{Path: "/" + program, Link: place[1:]})
		}
	}
	return i
}
