// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// BackendType names a backend. It is the same on all nodes, and the controller's.
type BackendType string

// The backends.
const (
	OVSBackend BackendType = "ovs" // each agent programs its node's Open vSwitch
	OVNBackend BackendType = "ovn" // the controller writes OVN's northbound database
	// NeutronBackend has the controller make networks and ports of OpenStack's Neutron, which
	// writes OVN's northbound database.
	NeutronBackend BackendType = "neutron"
)

// Backend says what brings about what Coelan's objects ask for.
type Backend struct {
	Type BackendType `json:"type"`
	// Cluster is the name of this cluster among those that share OVN's northbound database, or a
	// project of OpenStack; empty: it is the only one, or the first.
	Cluster string `json:"cluster"`
	// Southbound are the remotes of OVN's southbound database, with commas between them, such as
	// ssl:192.0.2.1:6642. The agent gives them to its node's ovn-controller, with the node's
	// address for tunnels; empty: an administrator does.
	Southbound string `json:"southbound"`
	// Certificates is a folder with tls.crt, tls.key and ca.crt, by which the agent reads the
	// southbound database with ssl: while the node is checked; empty: it does not.
	Certificates string `json:"certificates"`
	// MachineBridge has the agent make the bridge of nodes that are machines of OpenStack, with the
	// interface in it that has the node's address; else an administrator does.
	MachineBridge bool `json:"machineBridge"`
}

// validateBackend also refuses settings that OVN would leave without effect.
func (c Config) validateBackend() error {
	b := c.Backend
	switch b.Type {
	case OVSBackend:
		if b != (Backend{Type: OVSBackend}) {
			return errors.New("backend: cluster, southbound, certificates and machineBridge are OVN's: set type to ovn, or leave them out")
		}
		return nil
	case OVNBackend, NeutronBackend:
	default:
		return fmt.Errorf("backend.type: is %q, not %s, %s or %s", b.Type, OVSBackend, OVNBackend, NeutronBackend)
	}
	var errs []error
	if c.Encapsulation == NoEncap {
		errs = append(errs, fmt.Errorf("encapsulation: is %s, but OVN has tunnels between nodes", c.Encapsulation))
	}
	if c.Services.Mode == KubeProxy {
		errs = append(errs, errors.New("services.mode: is kube-proxy, but OVN leads answers between pods past the nodes' "+
			"kernels, which would have to translate them: set native"))
	}
	if b.Type == NeutronBackend && c.Policy.AuditDenied {
		errs = append(errs, errors.New("policy.auditDenied: Neutron does not log what is denied: set false"))
	}
	if b.Type != NeutronBackend && b.MachineBridge {
		errs = append(errs, errors.New("backend.machineBridge: is about nodes that are machines of OpenStack: set "+
			"backend.type to neutron, or leave it out"))
	}
	if len(c.Uplinks) > 0 {
		errs = append(errs, errors.New("uplinks: OVN has bridges of physical networks alone: make the bridge, with the "+
			"card in it, and name it in bridgeMappings"))
	}
	if len(c.BridgeMappings) > 0 && b.Southbound == "" {
		errs = append(errs, errors.New("bridgeMappings: without backend.southbound an administrator configures OVN on the "+
			"node, by external_ids:ovn-bridge-mappings: set one or the other"))
	}
	if b.Cluster != "" {
		for _, problem := range validation.IsDNS1123Label(b.Cluster) {
			errs = append(errs, fmt.Errorf("backend.cluster: %q: %s", b.Cluster, problem))
		}
	}
	if b.Certificates != "" {
		errs = append(errs, absolute("backend.certificates", b.Certificates))
	}
	if b.Southbound != "" {
		errs = append(errs, validRemotes("backend.southbound", b.Southbound))
	}
	return errors.Join(errs...)
}

// validRemotes checks remotes of an OVSDB server as OVN has them, by addresses: unix:PATH,
// tcp:ADDRESS:PORT or ssl:ADDRESS:PORT.
func validRemotes(field, list string) error {
	var errs []error
	for _, remote := range strings.Split(list, ",") {
		kind, rest, _ := strings.Cut(remote, ":")
		_, err := netip.ParseAddrPort(rest)
		switch kind {
		case "unix":
			err = absolute(field, rest)
		case "tcp", "ssl":
		default:
			err = strconv.ErrSyntax
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %q is not tcp:ADDRESS:PORT, ssl:ADDRESS:PORT or unix:PATH", field, remote))
		}
	}
	return errors.Join(errs...)
}
