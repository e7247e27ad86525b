// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"coelan.io/coelan/internal/image"
)

// The images, by the names that manifests and the upstream end-to-end tests use;
// there is no registry.
const (
	registry     = "registry.k8s.io/"
	PauseImage   = registry + "pause:3.10.1"
	AgnhostImage = registry + "e2e-test-images/agnhost:2.56"
	CoreDNSImage = registry + "coredns/coredns:" + CoreDNSVersion
)

// aliases are further names of the images. The tests use some upstream images only for a shell and
// tools that agnhost's has.
var aliases = map[string][]string{
	PauseImage: {registry + "pause:3.10"},
	AgnhostImage: {
		registry + "e2e-test-images/agnhost:2.45",
		registry + "e2e-test-images/jessie-dnsutils:1.7",
		registry + "e2e-test-images/busybox:1.36.1-1", registry + "e2e-test-images/busybox:1.37.0-1",
	},
}

// toolsPackages are what tests run in pods, besides the shell and core tools
// of Debian's essential packages.
const toolsPackages = "curl,wget,iproute2,iputils-ping,iputils-tracepath,bind9-dnsutils,netcat-openbsd,iperf3,tcpdump,ethtool"

const debianRelease = "bookworm"

//go:embed agnhost.sh
var agnhostWrapper string

// imagesDir is where the archives are, named by all that goes into them.
func (c Cache) imagesDir() string {
	return filepath.Join(c.Dir, "images-"+key(
		KubernetesVersion, CoreDNSVersion, aliases, toolsPackages, debianRelease, agnhostWrapper))
}

// Archives are the docker-archive files of the images that every node has.
func (c Cache) Archives() []string {
	dir := c.imagesDir()
	return []string{
		filepath.Join(dir, "pause.tar"), filepath.Join(dir, "coredns.tar"), filepath.Join(dir, "agnhost.tar"),
	}
}

func (c Cache) images(ctx context.Context) error {
	return c.make(filepath.Base(c.imagesDir()), "make images", func(dir string) error {
		if err := c.pauseImage(ctx, dir); err != nil {
			return err
		}
		coredns := image.Image{
			Tag: CoreDNSImage, Entrypoint: []string{"/coredns"},
			Files: []image.File{{Path: "/coredns", Source: c.Binary("coredns")}},
		}
		if err := coredns.Write(filepath.Join(dir, "coredns.tar")); err != nil {
			return err
		}
		return c.agnhostImage(ctx, dir)
	})
}

// program builds one of the sandbox's own programs.
func (c Cache) program(ctx context.Context, dir, name string) (binary string, err error) {
	source, err := c.source()
	if err != nil {
		return "", err
	}
	binary = filepath.Join(dir, name)
	return binary, Run(ctx, source, []string{"CGO_ENABLED=0"},
		"go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", binary, "./internal/sandbox/"+name)
}

func (c Cache) pauseImage(ctx context.Context, dir string) error {
	binary, err := c.program(ctx, dir, "pause")
	if err != nil {
		return err
	}
	defer os.Remove(binary)
	pause := image.Image{
		Tag: PauseImage, Entrypoint: []string{"/pause"}, Files: []image.File{{Path: "/pause", Source: binary}},
	}
	return pause.Write(filepath.Join(dir, "pause.tar"))
}

// agnhostImage is upstream's test image as its Dockerfile describes it, on Debian.
func (c Cache) agnhostImage(ctx context.Context, dir string) error {
	root := filepath.Join(dir, "root.tar")
	defer os.Remove(root)
	err := Run(ctx, "/", nil, "mmdebstrap", "--quiet", "--variant=essential", "--include="+toolsPackages,
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*",
		"--dpkgopt=path-exclude=/usr/share/locale/*", debianRelease, root)
	if err != nil {
		return err
	}
	sctp, err := c.program(ctx, dir, "sctp")
	if err != nil {
		return err
	}
	defer os.Remove(sctp)
	porter, err := c.moduleFile(ctx, "kubernetes", "k8s.io/kubernetes", "test/images/agnhost/porter")
	if err != nil {
		return err
	}
	agnhost := image.Image{
		Tag: AgnhostImage, Base: root, Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"},
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Files: []image.File{
			{Path: "/agnhost", Content: agnhostWrapper, Mode: 0o755},
			{Path: "/agnhost-2", Link: "agnhost"},
			{Path: "/agnhost.real", Source: c.Binary("agnhost")},
			{Path: "/sctp", Source: sctp},
			{Path: "/coredns", Source: c.Binary("coredns")},
			{Path: "/localhost.crt", Source: filepath.Join(porter, "localhost.crt"), Mode: 0o644},
			{Path: "/localhost.key", Source: filepath.Join(porter, "localhost.key"), Mode: 0o644},
			{Path: "/uploads/.keep", Content: "\n", Mode: 0o644},
		},
	}
	return agnhost.Write(filepath.Join(dir, "agnhost.tar"))
}

// moduleFile is the path of a file in the source of a Go module that build/NAME requires.
func (c Cache) moduleFile(ctx context.Context, name, module, file string) (string, error) {
	source, err := c.source()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Dir = filepath.Join(source, "build", name)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w", cmd.Args, err)
	}
	return filepath.Join(string(bytes.TrimSpace(out)), file), nil
}
