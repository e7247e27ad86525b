// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"coelan.io/coelan/internal/kernellimits"
	"coelan.io/coelan/internal/sandbox/artifact"
)

// foreign are the parts of this machine's /etc that are another's business or the sandbox's own.
var foreign = []string{
	"cni", "containerd", "coredns", "kubernetes", "openvswitch", "ovn", "rancher", "coelan", "machine-id", "hosts",
	"resolv.conf",
}

// plant makes dir by way of a temporary one, unless it is there.
func plant(dir string, fill func(tmp string) error) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	tmp := dir + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := fill(tmp); err != nil {
		return err
	}
	return os.Rename(tmp, dir) //nolint:forbidigo // a directory, which is recreated if it is not there
}

// plantEtc makes a machine's /etc: a copy of this one's, without what does not belong there.
func plantEtc(ctx context.Context, dir string) error {
	return plant(dir, func(tmp string) error {
		if err := artifact.CopyTree(ctx, "/etc", tmp); err != nil {
			return err
		}
		for _, name := range foreign {
			if err := os.RemoveAll(filepath.Join(tmp, name)); err != nil {
				return err
			}
		}
		return os.WriteFile(filepath.Join(tmp, "machine-id"), []byte(machineID()+"\n"), 0o444)
	})
}

// plantPlugins gives a node copies of the reference plugins, as their package on a real node does.
// Installers of other plugins write beside them.
func (s *Sandbox) plantPlugins(ctx context.Context, dir string) error {
	return plant(dir, func(tmp string) error { return artifact.CopyTree(ctx, s.cache.PluginDir(), tmp) })
}

func machineID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// inotifyInstances is what the kernel's limit should at least be. Its default of 128 for all of
// root's processes is too low for two sandboxes: a cluster of three nodes takes about 75.
const inotifyInstances = 1024

// raiseInotify changes a kernel setting of the whole computer; it stays.
func raiseInotify() error {
	_, err := kernellimits.Raise("/proc/sys/fs/inotify/max_user_instances", inotifyInstances)
	return err
}
