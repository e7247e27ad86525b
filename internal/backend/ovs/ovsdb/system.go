// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nlenc"
	"github.com/ovn-kubernetes/libovsdb/model"
	db "github.com/ovn-kubernetes/libovsdb/ovsdb"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/backend/ovs/appctl"
)

// MinVersion is the oldest supported Open vSwitch: the first with all parts of OpenFlow
// 1.5 that are used.
var MinVersion = Version{2, 17, 0}

// ErrTooOld is wrapped by the error of CheckVersion for an Open vSwitch below
// MinVersion.
var ErrTooOld = errors.New("too old")

// Version is that of an Open vSwitch: major, minor, patch.
type Version [3]int

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// Less compares versions.
func (v Version) Less(w Version) bool { return slices.Compare(v[:], w[:]) < 0 }

// Info is what an Open vSwitch says of itself.
type Info struct {
	Version       Version  // of the running ovs-vswitchd
	DatapathTypes []string // "netdev", and "system" where it can be used
	IfaceTypes    []string
	OtherConfig   map[string]string
}

// Datapath is the one that is wanted, if it can be used here; empty: the kernel's if it can be
// used, else the userspace one.
func (i Info) Datapath(want string) (string, error) {
	const kernel, userspace = "system", "netdev"
	if want == "" {
		want = userspace
		if slices.Contains(i.DatapathTypes, kernel) {
			want = kernel
		}
	}
	if !slices.Contains(i.DatapathTypes, want) {
		return "", fmt.Errorf("datapath %q cannot be used here, Open vSwitch %s offers %v; is the kernel module openvswitch there?",
			want, i.Version, i.DatapathTypes)
	}
	return want, nil
}

// Info asks the running Open vSwitch. Its error wraps appctl.ErrNotRunning or
// ErrNotConnected if a daemon does not run, ErrTooOld if it cannot be used.
func (c *Client) Info(ctx context.Context) (Info, error) {
	var info Info
	err := c.with(ctx, func(_ context.Context, s *session) error {
		root, err := s.root()
		if err != nil {
			return err
		}
		info.IfaceTypes, info.OtherConfig = root.IfaceTypes, root.OtherConfig
		info.DatapathTypes, err = usable(root.DatapathTypes)
		return err
	})
	if err == nil {
		info.Version, err = c.version(ctx)
	}
	if err != nil {
		return Info{}, fmt.Errorf("Open vSwitch: %w", err)
	}
	if info.Version.Less(MinVersion) {
		return info, fmt.Errorf("Open vSwitch %s is %w: %s or later is needed", info.Version, ErrTooOld, MinVersion)
	}
	return info, nil
}

// version asks the daemon: the database's ovs_version is that of the last start
// script that wrote it, if any did.
func (c *Client) version(ctx context.Context) (Version, error) {
	text, err := appctl.Vswitchd(filepath.Dir(c.socket)).Call(ctx, "version")
	if err != nil {
		return Version{}, err
	}
	return parseVersion(text)
}

// usable leaves out the kernel's datapath where the kernel has none: the database
// lists what Open vSwitch was built with.
func usable(datapaths []string) ([]string, error) {
	err := askFamily("ovs_datapath")
	if errors.Is(err, fs.ErrNotExist) {
		return slices.DeleteFunc(slices.Clone(datapaths), func(d string) bool { return d == "system" }), nil
	}
	if err != nil {
		return nil, fmt.Errorf("ask the kernel for its datapath: %w", err)
	}
	return datapaths, nil
}

// askFamily fails with fs.ErrNotExist if the kernel has no generic netlink family
// of that name. Asking loads the family's module (linux: genetlink.h).
func askFamily(name string) error {
	conn, err := netlink.Dial(unix.NETLINK_GENERIC, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	family, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.CTRL_ATTR_FAMILY_NAME,
		Data: nlenc.Bytes(name)}})
	if err != nil {
		return err
	}
	_, err = conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.GENL_ID_CTRL, Flags: netlink.Request},
		// command, version, reserved.
		Data: append([]byte{unix.CTRL_CMD_GETFAMILY, 1, 0, 0}, family...),
	})
	return err
}

var versionText = regexp.MustCompile(`\(Open vSwitch\) (\d+)\.(\d+)\.(\d+)`)

// parseVersion reads what "ovs-vswitchd --version" prints.
func parseVersion(text string) (v Version, err error) {
	m := versionText.FindStringSubmatch(text)
	if m == nil {
		return v, fmt.Errorf("ovs-vswitchd says no version: %.60q", text)
	}
	for i := range v {
		if v[i], err = strconv.Atoi(m[i+1]); err != nil {
			return v, err
		}
	}
	return v, nil
}

// SetOtherConfig sets keys of Open_vSwitch other_config; an empty value removes
// the key. It waits until ovs-vswitchd has seen it.
func (c *Client) SetOtherConfig(ctx context.Context, config map[string]string) error {
	return c.with(ctx, func(ctx context.Context, s *session) error {
		ops, err := s.setOtherConfig(config)
		if err != nil {
			return err
		}
		cfg, err := s.configure(ctx, ops)
		if err != nil {
			return err
		}
		return c.applied(ctx, s, cfg)
	})
}

const flowRestoreWait = "flow-restore-wait"

// ReleaseFlowRestore tells an ovs-vswitchd that has started with
// flow-restore-wait that its flows are in place, and waits until it has seen
// it. It then sets the flag again if arm is true: a running ovs-vswitchd does
// not look at it any more (ovs: bridge_run in vswitchd/bridge.c), the next one
// that starts does, and keeps the datapath's old flows until the next release.
func (c *Client) ReleaseFlowRestore(ctx context.Context, arm bool) error {
	if err := c.SetOtherConfig(ctx, map[string]string{flowRestoreWait: ""}); err != nil {
		return fmt.Errorf("release %s: %w", flowRestoreWait, err)
	}
	if !arm {
		return nil
	}
	err := c.with(ctx, func(ctx context.Context, s *session) error {
		ops, err := s.setOtherConfig(map[string]string{flowRestoreWait: "true"})
		if err != nil {
			return err
		}
		_, err = s.transact(ctx, ops)
		return err
	})
	if err != nil {
		return fmt.Errorf("set %s for the next start: %w", flowRestoreWait, err)
	}
	return nil
}

func (s *session) setOtherConfig(config map[string]string) ([]db.Operation, error) {
	root, err := s.root()
	if err != nil {
		return nil, err
	}
	keys, set := make([]string, 0, len(config)), map[string]string{}
	for k, v := range config {
		keys = append(keys, k)
		if v != "" {
			set[k] = v
		}
	}
	// Insert does not replace a value: delete the key first.
	return s.cli.Where(root).Mutate(root,
		model.Mutation{Field: &root.OtherConfig, Mutator: db.MutateOperationDelete, Value: keys},
		model.Mutation{Field: &root.OtherConfig, Mutator: db.MutateOperationInsert, Value: set})
}
