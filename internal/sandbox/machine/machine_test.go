// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestConfigRoundTrip(t *testing.T) {
	dir := t.TempDir()
	want := Config{
		Name: "worker1", Cgroup: "x/worker1",
		Uplink: &Uplink{
			MAC:       HardwareAddr{2, 0, 0, 0, 0, 1},
			Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.2/24")},
			Routes:    []Route{{To: netip.MustParsePrefix("fd00::/64"), Via: netip.MustParseAddr("fd01::1")}},
		},
		Components: []Component{{Name: "a", Command: []string{"b"}, Ready: Probe{URL: "http://c"}}},
	}
	if err := want.Write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

const mountinfo = `22 27 0:21 / /proc rw - proc proc rw
23 27 0:22 / /sys rw - sysfs sysfs rw
24 23 0:23 / /sys/fs/cgroup rw - tmpfs tmpfs rw
25 24 0:24 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct
26 24 0:25 / /sys/fs/cgroup/systemd rw shared:8 - cgroup cgroup rw,xattr,release_agent=/x,name=systemd
28 24 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
29 24 0:27 /part /elsewhere rw - cgroup2 cgroup2 rw
27 1 254:0 / / rw - ext4 /dev/vda rw
30 27 254:1 / /var/lib rw - ext4 /dev/vdb rw
31 30 0:30 / /var/lib/docker/overlay rw - overlay overlay rw
32 27 0:31 / /run rw - tmpfs tmpfs rw
33 32 0:4 net:[1] /run/netns/a rw - nsfs nsfs rw
34 27 0:32 / /running rw - tmpfs tmpfs rw
`

func writeMountinfo(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mountinfo")
	if err := os.WriteFile(file, []byte(mountinfo), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCgroupHierarchies(t *testing.T) {
	got, err := cgroupHierarchies(writeMountinfo(t))
	if err != nil {
		t.Fatal(err)
	}
	want := []hierarchy{
		{path: "/sys/fs/cgroup/cpu,cpuacct", options: "cpu,cpuacct"},
		{path: "/sys/fs/cgroup/systemd", options: "none,name=systemd"},
		{path: "/sys/fs/cgroup/unified", unified: true},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(hierarchy{})); diff != "" {
		t.Error(diff)
	}
}

func TestHiddenMounts(t *testing.T) {
	got, err := hiddenMounts(writeMountinfo(t), "/var/lib/coelan-sandbox/x/machines/cp")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"/run/netns/a", "/run", "/var/lib/docker/overlay", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd",
		"/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup", "/sys", "/proc",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A number that another process got later is not the machine.
func TestPIDReuse(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if err := writePID(dir, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if pid, ok := PID(dir); !ok || pid != cmd.Process.Pid {
		t.Errorf("PID() = %d, %t", pid, ok)
	}
	data, err := os.ReadFile(filepath.Join(dir, pidFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, pidFile), append([]byte("1"), data...), 0o644); err != nil {
		t.Fatal(err)
	}
	if pid, ok := PID(dir); ok {
		t.Errorf("PID() = %d for another process", pid)
	}
	if err := Kill(t.Context(), dir); err != nil {
		t.Errorf("Kill of a machine that does not run: %v", err)
	}
}

func TestKillWaits(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := writePID(dir, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := Kill(within(t), dir); err != nil {
		t.Fatal(err)
	}
	if _, ok := PID(dir); ok {
		t.Error("still there")
	}
}
