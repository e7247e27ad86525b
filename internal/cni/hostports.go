// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"fmt"
	"net/netip"
	"strings"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/wire"
	"coelan.io/coelan/internal/intent"
)

// portMapping is an entry of the capability portMappings as runtimes give it.
type portMapping struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP"`
}

var hostPortProtocols = map[string]intent.Protocol{"": intent.TCP, "tcp": intent.TCP, "udp": intent.UDP,
	"sctp": intent.SCTP}

// readHostPorts takes the ports of the node that are to lead to the pod. They
// are its first interface's.
func (s *Server) readHostPorts(c *call) error {
	var given struct {
		PortMappings []portMapping `json:"portMappings"`
	}
	if err := decodePart("runtimeConfig", c.conf.RuntimeConfig, &given); err != nil {
		return err
	}
	for i, m := range given.PortMappings {
		if m.HostPort == 0 {
			continue // no port of the node's is asked for
		}
		where := fmt.Sprintf("runtimeConfig in the network configuration: portMappings[%d]", i)
		if c.Delegate() {
			return newError(wire.CodeInvalidConfig, where,
				"host ports lead to a pod's first interface, and this is another one")
		}
		p, err := m.read()
		if err != nil {
			return newError(wire.CodeInvalidConfig, where, err.Error())
		}
		if s.opts.Reserved != nil && s.opts.Reserved(p.Protocol, p.HostPort) {
			return newError(wire.CodeInvalidConfig, where,
				fmt.Sprintf("%s port %d of the node is Coelan's own; choose another", p.Protocol, p.HostPort))
		}
		c.hostPorts = append(c.hostPorts, p)
	}
	return nil
}

func (m portMapping) read() (p attachment.HostPort, err error) {
	var known bool
	if p.Protocol, known = hostPortProtocols[strings.ToLower(m.Protocol)]; !known {
		return p, fmt.Errorf("protocol %q is not tcp, udp or sctp", m.Protocol)
	}
	for name, port := range map[string]int{"hostPort": m.HostPort, "containerPort": m.ContainerPort} {
		if port < 1 || port > 65535 {
			return p, fmt.Errorf("%s %d is not between 1 and 65535", name, port)
		}
	}
	p.HostPort, p.Port = uint16(m.HostPort), uint16(m.ContainerPort)
	if m.HostIP == "" {
		return p, nil
	}
	if p.HostIP, err = netip.ParseAddr(m.HostIP); err != nil || p.HostIP.Zone() != "" {
		return p, fmt.Errorf("hostIP %q is not an address of a node", m.HostIP)
	}
	p.HostIP = p.HostIP.Unmap()
	return p, nil
}
