// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"coelan.io/coelan/internal/metricsaccess"
)

// The pods' MTU: IPv6 needs 1280 bytes (RFC 8200, section 5), and an IP packet holds at most 65535.
const (
	minMTU = 1280
	maxMTU = 65535
	// maxIfName is IFNAMSIZ without its terminating zero.
	maxIfName = 15
	// maxSocketPath is what fits into sockaddr_un.
	maxSocketPath = 107
)

// Validate checks every field and every pair of fields that exclude each other. All findings are
// joined; each starts with the field's name as it stands in the file.
func (c Config) Validate() error {
	return errors.Join(
		c.validateBackend(),
		oneOf("datapath", c.Datapath, DatapathAuto, DatapathSystem, DatapathNetdev),
		oneOf("encapsulation", c.Encapsulation, VXLAN, Geneve, NoEncap),
		c.validateMTU(),
		ifName("bridge", c.Bridge),
		ifName("gatewayInterface", c.GatewayInterface),
		c.validateNames(),
		absolute("ovsRunDir", c.OVSRunDir),
		oneOf("mapping", c.Mapping, MapFlat, MapNamespace),
		c.validateBridgeMappings(),
		c.validateUplinks(),
		c.validateSubnets(),
		oneOf("servesNetworks", c.ServesNetworks, ServesAuto, ServesAlways, ServesNever),
		excludes(c.SNAT),
		c.Services.validate(),
		c.LoadBalancer.validate(c),
		c.Policy.validate(),
		c.Conntrack.validate(),
		c.Neighbours.validate(),
		absolute("cni.binDir", c.CNI.BinDir),
		absolute("cni.confDir", c.CNI.ConfDir),
		socket("cni.socket", c.CNI.Socket),
		optionalAbsolute("cni.binary", c.CNI.Binary),
		bindAddress("metricsBindAddress", c.MetricsBindAddress),
		oneOf("metricsAccess", c.MetricsAccess, metricsaccess.Authorized, metricsaccess.Open),
		logLevel(c.LogLevel),
		absolute("stateDir", c.StateDir),
		socket("agentSocket", c.AgentSocket),
		absolute("sysctlDir", c.SysctlDir),
		optionalAbsolute("kubeconfig", c.Kubeconfig),
		c.APIServer.validate(),
	)
}

// Level is the log level as slog knows it; Validate has refused every other text.
func (c Config) Level() slog.Level {
	var l slog.Level
	_ = l.UnmarshalText([]byte(c.LogLevel))
	return l
}

func oneOf[T ~string](field string, v T, allowed ...T) error {
	if slices.Contains(allowed, v) {
		return nil
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	return fmt.Errorf("%s: %q is not one of %s", field, v, strings.Join(names, ", "))
}

func (c Config) validateMTU() error {
	if c.MTU == 0 || c.MTU >= minMTU && c.MTU <= maxMTU {
		return nil
	}
	return fmt.Errorf("mtu: %d is neither 0 (automatic) nor between %d and %d", c.MTU, minMTU, maxMTU)
}

func ifName(field, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s: must not be empty", field)
	case len(name) > maxIfName:
		return fmt.Errorf("%s: %q is longer than %d characters", field, name, maxIfName)
	case name == "." || name == ".." || strings.ContainsAny(name, "/: \t\n%"):
		return fmt.Errorf("%s: %q is not an interface name", field, name)
	}
	return nil
}

// validateNames refuses two settings that would claim the same thing.
func (c Config) validateNames() error {
	var errs []error
	if c.Bridge == c.GatewayInterface {
		errs = append(errs, fmt.Errorf("gatewayInterface: %q is also the bridge's name", c.GatewayInterface))
	}
	if filepath.Clean(c.CNI.Socket) == filepath.Clean(c.AgentSocket) {
		errs = append(errs, fmt.Errorf("agentSocket: %q is also cni.socket", c.AgentSocket))
	}
	if filepath.Clean(c.CNI.BinDir) == filepath.Clean(c.CNI.ConfDir) {
		errs = append(errs, fmt.Errorf("cni.confDir: %q is also cni.binDir", c.CNI.ConfDir))
	}
	return errors.Join(errs...)
}

func absolute(field, path string) error {
	if path == "" {
		return fmt.Errorf("%s: must not be empty", field)
	}
	return optionalAbsolute(field, path)
}

func optionalAbsolute(field, path string) error {
	if path == "" || filepath.IsAbs(path) {
		return nil
	}
	return fmt.Errorf("%s: %q is not an absolute path", field, path)
}

func socket(field, path string) error {
	if len(path) > maxSocketPath {
		return fmt.Errorf("%s: %q is longer than the %d bytes of a unix socket's path", field, path, maxSocketPath)
	}
	return absolute(field, path)
}

// excludes checks the destinations without SNAT.
func excludes(s SNAT) error {
	const field = "snat.excludeCIDRs"
	var errs []error
	if !s.Enabled && len(s.ExcludeCIDRs) > 0 {
		errs = append(errs, fmt.Errorf("%s: has no effect while snat.enabled is false; remove one of the two", field))
	}
	return errors.Join(append(errs, prefixes(field, s.ExcludeCIDRs))...)
}

// prefixes takes whole prefixes, no two of which overlap.
func prefixes(field string, list []netip.Prefix) error {
	var errs []error
	for i, p := range list {
		if !p.IsValid() {
			errs = append(errs, fmt.Errorf("%s[%d]: must not be empty", field, i))
			continue
		}
		if p != p.Masked() {
			errs = append(errs,
				fmt.Errorf("%s[%d]: %s has bits set beyond its length; write %s", field, i, p, p.Masked()))
		}
		if p.Addr().Is4In6() {
			errs = append(errs, fmt.Errorf("%s[%d]: write the IPv4 prefix %s in IPv4 form", field, i, p))
		}
		for j, q := range list[:i] {
			if q.IsValid() && p.Overlaps(q) {
				errs = append(errs, fmt.Errorf("%s[%d]: %s overlaps [%d] %s", field, i, p, j, q))
			}
		}
	}
	return errors.Join(errs...)
}

func bindAddress(field, v string) error {
	if v == "0" {
		return nil
	}
	host, port, err := net.SplitHostPort(v)
	if err != nil {
		return fmt.Errorf("%s: %q is not host:port, :port or 0: %w", field, v, err)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%s: port %q is not between 1 and 65535", field, port)
	}
	if host != "" {
		if _, err := netip.ParseAddr(host); err != nil {
			return fmt.Errorf("%s: %q is not an address: %w", field, host, err)
		}
	}
	return nil
}

func logLevel(v string) error { return oneOf("logLevel", v, "debug", "info", "warn", "error") }
