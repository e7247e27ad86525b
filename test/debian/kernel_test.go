// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestModulesLoadInOrderOfNeed(t *testing.T) {
	dep := `kernel/virtio.ko:
kernel/virtio_ring.ko: kernel/virtio.ko
kernel/net-9p.ko: kernel/netfs.ko
kernel/netfs.ko:
kernel/virtio_pci.ko: kernel/virtio_ring.ko kernel/virtio.ko
`
	k := Kernel{dir: t.TempDir(), Release: "6.1.0-1-amd64"}
	if err := os.MkdirAll(k.ModulesDir(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(k.ModulesDir(), "modules.dep"), []byte(dep), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := k.Modules("virtio_pci", "net_9p", "virtio_ring")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"kernel/virtio.ko", "kernel/virtio_ring.ko", "kernel/virtio_pci.ko", "kernel/netfs.ko", "kernel/net-9p.ko"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("order (-want +got):\n%s", d)
	}
	if _, err := k.Modules("absent"); err == nil {
		t.Error("an unknown module is no error")
	}
}

func TestNewestCachedKernel(t *testing.T) {
	cache := t.TempDir()
	if k, ok := newestCached(cache); ok {
		t.Errorf("empty cache holds %v", k)
	}
	for _, release := range []string{"6.1.0-55-amd64", "6.1.0-56-amd64"} {
		k := Kernel{dir: filepath.Join(cache, "linux-image-"+release), Release: release}
		if err := os.MkdirAll(k.ModulesDir(), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(k.ModulesDir(), "modules.dep.bin"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, ok := newestCached(cache)
	want := filepath.Join(cache, "linux-image-6.1.0-56-amd64/boot/vmlinuz-6.1.0-56-amd64")
	if !ok || got.Image() != want {
		t.Errorf("image %s, want %s", got.Image(), want)
	}
}

// TestArchiveForm compares with the archive that cpio -H newc makes of the
// same entries, as far as the kernel looks at it.
func TestArchiveForm(t *testing.T) {
	var a Archive
	a.File("a", 0o644, []byte("hello"))
	want := "070701" + "00000001" + "000081A4" + "00000000" + "00000000" + "00000001" + "00000000" + "00000005" +
		"00000000" + "00000000" + "00000000" + "00000000" + "00000002" + "00000000" + "a\x00" + "hello\x00\x00\x00"
	if d := cmp.Diff(want, a.buf.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
