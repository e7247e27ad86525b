// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/netconf"
	"coelan.io/coelan/internal/cni/wire"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
)

// HandleIPAM answers one request of another plugin for addresses of the node's podCIDRs: CNI
// specification, section 4. ADD and DEL are idempotent. Only ADD has a result.
func (s *Server) HandleIPAM(ctx context.Context, r wire.Request) ([]byte, *wire.Error) {
	return s.handle(ctx, r, parseIPAM, s.dispatchIPAM)
}

// parseIPAM checks a request. The pod need not be known: not only Kubernetes' runtimes ask.
func parseIPAM(r wire.Request) (call, []string, error) {
	c := call{command: r.Command, netns: r.Netns,
		Request: Request{Key: attachment.Key{ContainerID: r.ContainerID, IfName: r.IfName}}}
	if err := checkCommand(r.Command); err != nil {
		return c, nil, err
	}
	var args addressArgs
	if r.Command != cmdGC && r.Command != cmdStatus {
		if err := checkEnvironment(r); err != nil {
			return c, nil, err
		}
		var err error
		if args, err = c.parseArgs(wire.Request{Args: r.Args}); err != nil && r.Command != cmdDel {
			return c, nil, err
		}
	}
	conf, err := netconf.ReadOther(r.Config, r.Command != cmdDel && r.Command != cmdGC)
	c.conf = conf
	if err == nil {
		err = checkVersion(r.Command, conf.CNIVersion)
	}
	if err == nil && r.Command == cmdAdd {
		err = c.readPortArgs(args.port, &args)
	}
	if err == nil && c.NeutronPort != "" {
		err = wrongArg(argPort, c.NeutronPort, "ipam-odl gives addresses alone: name the port to coelan-cni")
	}
	if err == nil && r.Command == cmdAdd {
		err = c.read(conf, args)
	}
	return c, nil, err
}

func (s *Server) dispatchIPAM(ctx context.Context, c call) ([]byte, error) {
	switch c.command {
	case cmdGC:
		return nil, s.gcLeases(ctx, c)
	case cmdStatus:
		node, err := s.node()
		if err == nil {
			_, _, err = node.podCIDRs()
		}
		return nil, notAvailable(err)
	}
	unlock, err := s.lock(ctx, c.ContainerID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	switch c.command {
	case cmdAdd:
		return s.lease(c)
	case cmdCheck:
		return nil, s.checkLease(c)
	default:
		return nil, s.opts.Store.EndLease(c.Key)
	}
}

func notAvailable(err error) error {
	if err == nil {
		return nil
	}
	return newError(wire.CodeNotAvailable, "no addresses can be given now", err.Error())
}

// podCIDRs are the node's, with the plan of an interface that is on them.
func (n Node) podCIDRs() ([]ipam.Range, attachment.Plan, error) {
	ranges, err := ipam.Parse(n.PodCIDRs)
	return ranges, attachment.Plan{Subnets: n.subnets()}, err
}

func (s *Server) lease(c call) ([]byte, error) {
	node, err := s.node()
	if err == nil {
		err = c.expects.fits(node)
	}
	if err != nil {
		return nil, err
	}
	ranges, asked, err := node.podCIDRs()
	if err != nil {
		return nil, err
	}
	asked.IfName, asked.NetworkName, asked.Addresses = c.IfName, intent.DefaultNetworkName, c.Addresses
	for _, a := range asked.Addresses {
		if err := (planned{&asked}).checkAddress(a); err != nil {
			return nil, err
		}
	}
	if why := c.expects.unmet(ofPlan(&asked)); why != "" {
		return nil, planned{&asked}.refused(v1alpha1.ReasonInvalid, "%s", why)
	}
	l, err := s.opts.Store.Lease(attachment.Lease{Key: c.Key, ConfName: c.conf.Name, Pod: c.pod()}, ranges, asked)
	switch {
	case errors.Is(err, attachment.ErrExists):
		return nil, newError(wire.CodeInvalidEnvironment, fmt.Sprintf("CNI_IFNAME %q", c.IfName),
			"Coelan has made this interface, and it has addresses already")
	case err != nil:
		return nil, err
	}
	for _, a := range asked.Addresses {
		if !slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr() == a }) {
			return nil, planned{&asked}.refused(v1alpha1.ReasonInvalid, "it has %v already, and %s is asked for",
				l.Addresses, a)
		}
	}
	s.log.Info("addresses leased", "container", l.Key, "network", l.ConfName, "pod", l.Pod, "addresses", l.Addresses)
	result := &types100.Result{CNIVersion: types100.ImplementedSpecVersion}
	for i, p := range l.Addresses {
		result.IPs = append(result.IPs, &types100.IPConfig{Address: ipNet(p), Gateway: l.Gateways[i].AsSlice()})
	}
	return encodeResult(result, c.conf.CNIVersion)
}

func (s *Server) checkLease(c call) error {
	list := s.opts.Store.Leases()
	i := slices.IndexFunc(list, func(l attachment.Lease) bool { return l.Key == c.Key })
	if i < 0 {
		return newError(wire.CodeUnknownContainer, c.subject()+" has no addresses of ipam-odl", "")
	}
	prev, err := previous(c.conf)
	if err != nil {
		return err
	}
	return checkAddresses(list[i].Addresses, c.subject(), prev)
}

// gcLeases ends what the runtime does not list as valid, of the configuration's network only.
func (s *Server) gcLeases(ctx context.Context, c call) error {
	valid, err := validAttachments(c.conf)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range s.opts.Store.Leases() {
		if l.ConfName != c.conf.Name || valid[l.Key] {
			continue
		}
		unlock, err := s.lock(ctx, l.ContainerID)
		if err == nil {
			err = s.opts.Store.EndLease(l.Key)
			unlock()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("container %s: %w", l.Key, err))
		}
	}
	return errors.Join(errs...)
}
