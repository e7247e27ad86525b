// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/statefile"
)

// memory is what an interface had when it was whole.
type memory struct {
	// Boot identifies the run of the kernel that Index belongs to.
	Boot string `json:"boot"`
	// Link is the interface's name, Node the address without which it is not whole, if it had one.
	Link  string     `json:"link"`
	Node  netip.Addr `json:"node"`
	Index int        `json:"index"`
	// Objects are what was configured on it.
	Objects []object `json:"objects"`
	// Settings are those of the card in a bridge, by their paths below the interface's name in
	// net/ipv4/conf and net/ipv6/conf. MTU is the card's.
	Settings map[string]string `json:"settings,omitempty"`
	MTU      int               `json:"mtu,omitempty"`
	// TurnedIPv6Off says that the card in a bridge had IPv6 before.
	TurnedIPv6Off bool `json:"turnedIPv6Off,omitempty"`
}

func (m *memory) has(node netip.Addr) bool {
	return !node.IsValid() ||
		slices.ContainsFunc(m.Objects, func(o object) bool { return o.Kind == unix.RTM_NEWADDR && o.address() == node })
}

// load reads the file; nil if there is none. A damaged file is an error once: it is moved away by
// the next save.
func load(path string) (*memory, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := &memory{}
	if err := json.Unmarshal(b, m); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w; it is removed and written again", path, err), os.Remove(path))
	}
	m.Objects = slices.DeleteFunc(m.Objects, func(o object) bool { return !o.valid() })
	return m, nil
}

// save replaces the file.
func (m *memory) save(path string) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return statefile.WriteBytes(path, 0o600, b)
}

// configured are the objects that stay until they are removed, and that neither come by themselves
// nor are made by Host.
func configured(list []object) []object {
	var kept []object
	for _, o := range list {
		if !o.passing() && !o.linkLocal() && o.protocol() != uint8(Protocol) && o.protocol() != unix.RTPROT_RA {
			kept = append(kept, o)
		}
	}
	return kept
}

// and is the objects of a and those of b that are not in a, in an order in which they can be added.
func and(a, b []object) []object {
	all := slices.Clone(a)
	for _, o := range b {
		if !slices.ContainsFunc(all, o.equal) {
			all = append(all, o)
		}
	}
	sortObjects(all)
	return all
}

// BootID is the kernel's random name of its present run; empty if it cannot be read.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
