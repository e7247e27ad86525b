// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/netconf"
	"coelan.io/coelan/internal/cni/wire"
)

// check returns an error that names every difference between what ADD made and what is
// there now.
func (s *Server) check(ctx context.Context, c call) error {
	unlock, err := s.lock(ctx, c.ContainerID)
	if err != nil {
		return err
	}
	defer unlock()
	g := s.group(c.Key)
	if len(g) == 0 && c.conf.Foreign != nil {
		return s.checkAttachedForeign(ctx, c)
	}
	if len(g) == 0 || g[0].Key != c.Key || c.PodUID != "" && c.PodUID != g[0].PodUID {
		return notAttached(c)
	}
	if err := s.opts.Interfaces.Verify(c.netns); err != nil {
		return err
	}
	node, err := s.node()
	if err != nil {
		return err
	}
	if err := checkPrevResult(g, c.conf); err != nil {
		return err
	}
	for _, a := range g {
		err = errors.Join(err, s.opts.Interfaces.Check(node.Interface(a)), s.opts.Dataplane.Check(ctx, a))
	}
	return notAsADD(c, err)
}

func notAttached(c call) error {
	return newError(wire.CodeUnknownContainer, c.subject()+" is not attached", "")
}

// notAsADD is the error for differences; nil if there are none.
func notAsADD(c call, differences error) error {
	if differences == nil {
		return nil
	}
	return newError(wire.CodeCheck, fmt.Sprintf("%s is not as ADD left it", c.subject()), differences.Error())
}

// checkPrevResult compares the result that the runtime has kept with the attachments. It
// may say more: plugins that came after this one add to it.
func checkPrevResult(g group, conf netconf.Config) error {
	prev, err := previous(conf)
	if err != nil {
		return err
	}
	for _, a := range g {
		if err := checkKept(a, prev); err != nil {
			return err
		}
	}
	return nil
}

func checkKept(a attachment.Attachment, prev *types100.Result) error {
	addresses, _ := runtimeAddresses(a)
	if err := checkAddresses(addresses, a.PodRef(), prev); err != nil {
		return err
	}
	if !slices.ContainsFunc(prev.Interfaces, func(i *types100.Interface) bool {
		return i.Name == a.IfName && i.Sandbox != "" && i.Mac == a.MAC.String()
	}) {
		return newError(wire.CodeCheck,
			fmt.Sprintf("prevResult lacks the interface %s with MAC %s of %s", a.IfName, a.MAC, a.PodRef()), "")
	}
	return nil
}

func checkAddresses(addresses []netip.Prefix, of string, prev *types100.Result) error {
	for _, want := range addresses {
		if !slices.ContainsFunc(prev.IPs, func(ip *types100.IPConfig) bool {
			return ip.Address.String() == want.String()
		}) {
			return newError(wire.CodeCheck, fmt.Sprintf("prevResult lacks the address %s of %s", want, of), "")
		}
	}
	return nil
}

// previous is the prevResult that CHECK needs.
func previous(conf netconf.Config) (*types100.Result, error) {
	if conf.PrevResult == nil {
		return nil, newError(wire.CodeInvalidConfig, "network configuration lacks the key prevResult, which CHECK needs", "")
	}
	prev, err := decodeResult(conf)
	if err != nil {
		return nil, newError(wire.CodeInvalidConfig, "prevResult in the network configuration", err.Error())
	}
	return prev, nil
}

// decodeResult reads prevResult, which is in the version of the configuration.
func decodeResult(conf netconf.Config) (*types100.Result, error) {
	conf.PrevResult["cniVersion"] = conf.CNIVersion
	data, err := json.Marshal(conf.PrevResult)
	if err != nil {
		return nil, err
	}
	result, err := version.NewResult(conf.CNIVersion, data)
	if err != nil {
		return nil, err
	}
	return types100.NewResultFromResult(result)
}
