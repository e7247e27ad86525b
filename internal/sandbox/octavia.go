// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"coelan.io/coelan/internal/neutronserver"
	"coelan.io/coelan/internal/sandbox/machine"
)

// The components of Octavia.
const (
	octaviaAgent = "octavia-driver-agent"
	octaviaAPI   = "octavia-api"
)

const (
	octaviaPort  = 9876 // as in all of OpenStack's documentation
	octaviaFile  = "/etc/octavia/octavia.conf"
	octaviaState = "/var/lib/octavia"
)

// octaviaResources is the name of the network of load balancers in Neutron, and podRouter that of
// the router that Coelan's controller makes for pods.
const (
	octaviaResources = "sandbox-balancers"
	podRouter        = "router-default"
)

// octavia is the Octavia of the control plane's first node, beside Neutron.
func (s Spec) octavia() neutronserver.Octavia {
	n := s.neutron()
	return neutronserver.Octavia{
		Listen: netip.AddrPortFrom(n.Listen.Addr(), octaviaPort), Dir: octaviaState, Database: n.Database,
		Neutron: n.Endpoint(), Northbound: n.Northbound, Southbound: n.Southbound,
	}
}

func (s Spec) octaviaComponents() []machine.Component {
	o := s.octavia()
	return []machine.Component{
		{
			Name: octaviaAgent, Command: o.Agent(octaviaFile), Group: true,
			After: []string{mariaDB, ovnNorthbound, ovnSouthbound},
			// Sockets of the life before would be taken for its own.
			Before: [][]string{{"mkdir", "-p", o.Sockets()}, {"find", o.Sockets(), "-type", "s", "-delete"}},
			Ready:  machine.Probe{Files: o.AgentSockets()},
		},
		{
			Name: octaviaAPI, Command: o.API(octaviaFile), Group: true,
			After:  []string{octaviaAgent, neutronServer},
			Before: [][]string{{"sh", "-c", free(o.Listen.Port())}},
			Ready:  machine.Probe{URL: o.Ready()},
		},
	}
}

// prepareOctavia waits for Octavia and finds the subnet of load balancers, which it makes if it is
// not there.
func (s *Sandbox) prepareOctavia(ctx context.Context) error {
	if err := s.WaitComponent(ctx, ControlPlaneName, octaviaAPI, apiTimeout); err != nil {
		return err
	}
	api := s.neutronAPI()
	network, err := api.ensure(ctx, "network", object{"name": octaviaResources}, nil)
	if err != nil {
		return err
	}
	cidr, more := s.subnetOfBalancers()
	s.octaviaSubnet, err = api.ensure(ctx, "subnet", object{"network_id": network, "cidr": cidr.String()}, more)
	return err
}

// subnetOfBalancers is the subnet of load balancers, which is of the primary family, and its other
// attributes in Neutron.
func (s Spec) subnetOfBalancers() (netip.Prefix, object) {
	cidr, version := of(s.Family, octaviaNets)[0], 4
	if cidr.Addr().Is6() {
		version = 6
	}
	return cidr, object{"ip_version": version, "enable_dhcp": false}
}

// routeOctavia puts the subnet of load balancers on the router of the pods, once the controller has
// made that.
func (s *Sandbox) routeOctavia(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	api := s.neutronAPI()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		router, err := api.find(ctx, "router", object{"name": podRouter})
		if err != nil {
			return err
		}
		if router != "" {
			return api.route(ctx, router, s.octaviaSubnet)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the controller has made no router %s: %w; see `coelan sandbox kubectl --name %s -- -n %s "+
				"logs deployment/%s`", podRouter, ctx.Err(), s.Name, agentNamespace, controllerName)
		}
	}
}
