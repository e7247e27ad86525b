// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// ServiceMode says what balances Services.
type ServiceMode string

// The modes. NativeServices needs a cluster without kube-proxy, KubeProxy one with it.
const (
	NativeServices ServiceMode = "native"
	KubeProxy      ServiceMode = "kube-proxy"
)

// DefaultServiceMode is the mode of an agent if its configuration names none.
const DefaultServiceMode = NativeServices

// Services configures how Services are reached.
type Services struct {
	// Mode is what balances them.
	Mode ServiceMode `json:"mode"`
	// CIDRs are prefixes of ClusterIPs beside those that the API's ServiceCIDRs name.
	CIDRs []netip.Prefix `json:"cidrs"`
	// ExternalIPs are the only ones that Services have; none: any, but none of
	// Services in private Routers.
	ExternalIPs []netip.Prefix `json:"externalIPs"`
	// NodePortAddresses are the prefixes of the node's addresses that node ports are at;
	// none: all but loopback.
	NodePortAddresses []netip.Prefix `json:"nodePortAddresses"`
	// HealthzBindAddress is where load balancers ask whether this node takes packets for Services;
	// "0" disables it.
	HealthzBindAddress string `json:"healthzBindAddress"`
}

// LoadBalancer configures how agents agree which node answers for the
// addresses of LoadBalancerPools.
type LoadBalancer struct {
	// MemberlistPort is the TCP and UDP port of the node's address by which agents notice
	// that one is gone.
	MemberlistPort int `json:"memberlistPort"`
}

func (s Services) validate() error {
	errs := []error{
		oneOf("services.mode", s.Mode, NativeServices, KubeProxy),
		prefixes("services.cidrs", s.CIDRs),
		prefixes("services.externalIPs", s.ExternalIPs),
		prefixes("services.nodePortAddresses", s.NodePortAddresses),
		bindAddress("services.healthzBindAddress", s.HealthzBindAddress),
	}
	for i, p := range s.CIDRs {
		if p.IsValid() && p.Bits() == 0 {
			errs = append(errs, fmt.Errorf("services.cidrs[%d]: %s is every address", i, p))
		}
	}
	for i, p := range s.NodePortAddresses {
		if p.IsValid() && p.Addr().IsLoopback() {
			errs = append(errs,
				fmt.Errorf("services.nodePortAddresses[%d]: %s is on loopback, where no node ports are", i, p))
		}
	}
	return errors.Join(errs...)
}

// validate refuses the port of another of the agent's servers.
func (l LoadBalancer) validate(c Config) error {
	const field = "loadBalancer.memberlistPort"
	if l.MemberlistPort < 1 || l.MemberlistPort > 65535 {
		return fmt.Errorf("%s: %d is not between 1 and 65535", field, l.MemberlistPort)
	}
	for name, address := range map[string]string{
		"metricsBindAddress": c.MetricsBindAddress, "services.healthzBindAddress": c.Services.HealthzBindAddress,
	} {
		if _, port, err := net.SplitHostPort(address); err == nil && port == strconv.Itoa(l.MemberlistPort) {
			return fmt.Errorf("%s: %d is also the port of %s", field, l.MemberlistPort, name)
		}
	}
	return nil
}
