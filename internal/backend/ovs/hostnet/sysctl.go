// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"coelan.io/coelan/internal/kernellimits"
)

// sysctls reads and writes the kernel's settings below dir.
type sysctls struct{ dir string }

func (s sysctls) get(path ...string) (string, error) {
	b, err := os.ReadFile(filepath.Join(append([]string{s.dir}, path...)...))
	return strings.TrimSpace(string(b)), err
}

// ensure writes value unless it is there already. It returns 1 when it wrote.
func (s sysctls) ensure(value string, path ...string) (int, error) {
	got, err := s.get(path...)
	if err == nil && got == value {
		return 0, nil
	}
	name := filepath.Join(append([]string{s.dir}, path...)...)
	if err == nil {
		err = os.WriteFile(name, []byte(value), 0o644)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, fmt.Errorf("kernel setting %s does not exist; is the address family turned off?", name)
	case err != nil:
		return 0, fmt.Errorf("kernel setting %s: cannot write %q: %w", name, value, err)
	}
	return 1, nil
}

// families of settings of interfaces.
var familySettings = []string{"ipv4", "ipv6"}

// notCopied are the settings of an interface that another one does not take over: disable_ipv6 is
// what a card in a bridge is left with, stable_secret can be read only once it was written, mtu is
// the interface's own, and mc_forwarding belongs to a multicast router's daemon.
var notCopied = []string{"disable_ipv6", "stable_secret", "mtu", "mc_forwarding"}

// ofInterface are an interface's own settings of both families.
func (s sysctls) ofInterface(name string) (map[string]string, error) {
	all := map[string]string{}
	for _, family := range familySettings {
		entries, err := os.ReadDir(filepath.Join(s.dir, "net", family, "conf", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if slices.Contains(notCopied, e.Name()) {
				continue
			}
			if all[family+"/"+e.Name()], err = s.get("net", family, "conf", name, e.Name()); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// setInterface writes those of ofInterface that an interface has otherwise.
func (s sysctls) setInterface(name string, settings map[string]string) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		family, setting, _ := strings.Cut(key, "/")
		_, err := s.ensure(settings[key], "net", family, "conf", name, setting)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// applyForwarding lets the node forward the families in use.
func (h *Host) applyForwarding(d Desired) (int, error) {
	v4, v6 := d.families()
	var n int
	var errs []error
	if v4 {
		k, err := h.sysctls.ensure("1", "net", "ipv4", "ip_forward")
		n, errs = n+k, append(errs, err)
		if d.Services.Native {
			// The kernel sends pods' packets for Services back out of the gateway interface. A
			// redirect, even if it is dropped, would use up the pod's share of ICMP errors, of
			// which "port unreachable" is one. The setting of one interface counts only if that of
			// all is 0; others keep their own.
			k, err := h.sysctls.ensure("0", "net", "ipv4", "conf", "all", "send_redirects")
			n, errs = n+k, append(errs, err)
		}
	}
	if v6 {
		k, err := h.forwardIPv6(d.Uplink)
		n, errs = n+k, append(errs, err)
	}
	return n, errors.Join(errs...)
}

// forwardIPv6 turns IPv6 forwarding on. A forwarding node ignores router advertisements unless
// accept_ra is 2, so an uplink that listens to them is told to go on first.
func (h *Host) forwardIPv6(uplink string) (int, error) {
	var n int
	if uplink != "" {
		if v, err := h.sysctls.get("net", "ipv6", "conf", uplink, "accept_ra"); err == nil && v == "1" {
			k, err := h.sysctls.ensure("2", "net", "ipv6", "conf", uplink, "accept_ra")
			if err != nil {
				return 0, err
			}
			n += k
		}
	}
	k, err := h.sysctls.ensure("1", "net", "ipv6", "conf", "all", "forwarding")
	return n + k, err
}

// applyNeighbors makes room for the neighbors of all pods, in the families in use.
func (h *Host) applyNeighbors(d Desired) (int, error) {
	var families []string
	v4, v6 := d.families()
	if v4 {
		families = append(families, "ipv4")
	}
	if v6 {
		families = append(families, "ipv6")
	}
	return kernellimits.RaiseNeighbors(h.sysctls.dir, families...)
}

// applyCards keeps network cards from answering for addresses that are on the bridge above them.
// The userspace datapath reads a card beside the kernel, not instead of it: the kernel would tell
// others the card's MAC for the node's address, and tunnel packets with that MAC are lost.
func (h *Host) applyCards(d Desired) (int, error) {
	var n int
	var errs []error
	for _, card := range d.Cards {
		v, err := h.sysctls.get("net", "ipv4", "conf", card, "arp_ignore")
		if errors.Is(err, fs.ErrNotExist) || err == nil && v != "0" {
			// It is no interface of this kernel, or a stricter value was configured.
			continue
		}
		k, err := h.sysctls.ensure("1", "net", "ipv4", "conf", card, "arp_ignore")
		n, errs = n+k, append(errs, err)
	}
	return n, errors.Join(errs...)
}

// gatewaySysctls are the settings of the gateway interface. rp_filter is loose because replies of
// connections that the host forwards may leave by another interface; redirects would tell pods to
// bypass their router.
var gatewaySysctls = []struct{ family, name, value string }{
	{"ipv4", "rp_filter", "2"},
	{"ipv4", "send_redirects", "0"},
	{"ipv4", "accept_redirects", "0"},
	{"ipv6", "accept_ra", "0"},
	{"ipv6", "accept_redirects", "0"},
	{"ipv6", "accept_dad", "0"},
	{"ipv6", "dad_transmits", "0"},
}

func (h *Host) applyGatewaySysctls(d Desired) (int, error) {
	v4, v6 := d.families()
	var n int
	var errs []error
	for _, s := range gatewaySysctls {
		if s.family == "ipv4" && !v4 || s.family == "ipv6" && !v6 {
			continue
		}
		k, err := h.sysctls.ensure(s.value, "net", s.family, "conf", d.Gateway.Name, s.name)
		n, errs = n+k, append(errs, err)
	}
	return n, errors.Join(errs...)
}
