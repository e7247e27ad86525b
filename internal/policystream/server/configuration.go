// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"coelan.io/coelan/internal/policystream/wire"
)

// Configurations knows the configurations of nodes.
type Configurations interface {
	// Of returns the addresses of a node and what holds for it; false while the node is not known.
	Of(node string) (NodeConfiguration, bool)
	// Changed is closed when Of may return something else than at the time of the call.
	Changed() <-chan struct{}
	// Refused takes note of a call with a node's token from an address that is not the node's.
	Refused(node string, err error)
}

// NodeConfiguration is what holds for a node.
type NodeConfiguration struct {
	// Addresses of the node: a call has to come from one of them.
	Addresses []netip.Addr
	Answer    *wire.NodeConfiguration
}

// Configuration implements wire.PoliciesServer.
func (s *Service) Configuration(_ *wire.ConfigurationRequest, stream wire.Policies_ConfigurationServer) error {
	ctx := stream.Context()
	who, err := s.caller(ctx)
	if err != nil {
		return err
	}
	if who.Node == "" {
		return status.Error(codes.PermissionDenied, "only an agent has a configuration")
	}
	defer authenticated(ctx)()
	source := s.hub.Configurations
	if source == nil {
		return status.Error(codes.Unimplemented, "this controller has no configurations of nodes")
	}
	away := s.hub.leaving()
	taken, leave := s.configured.enter(who.Node)
	defer leave()
	age := s.newAge()
	defer age.Stop()
	from := callerAddress(ctx)
	var sent *wire.NodeConfiguration
	for {
		changed := source.Changed()
		if now, known := source.Of(who.Node); known {
			if err := ownAddress(who.Node, from, now.Addresses); err != nil {
				source.Refused(who.Node, err)
				return status.Error(codes.PermissionDenied, err.Error())
			}
			if sent == nil || !proto.Equal(sent, now.Answer) {
				if err := stream.Send(now.Answer); err != nil {
					return err
				}
				sent = now.Answer
			}
		}
		select {
		case <-changed:
		case <-taken:
			return errNewerStream()
		case <-away:
			return errAway()
		case <-age.C:
			return errAge()
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// callerAddress is where a call comes from, as this controller sees it; not valid if it is no
// address.
func callerAddress(ctx context.Context) netip.Addr {
	p, there := peer.FromContext(ctx)
	if !there {
		return netip.Addr{}
	}
	tcp, ok := p.Addr.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	// A node's addresses in the API have no zone, and IPv4 comes as IPv6 on a socket for both.
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}

// ownAddress says why a node's configuration is not for a caller.
func ownAddress(node string, from netip.Addr, own []netip.Addr) error {
	if slices.Contains(own, from) {
		return nil
	}
	if len(own) == 0 {
		return fmt.Errorf("node %s has no address in the API, and %s asks for its configuration", node, from)
	}
	list := make([]string, len(own))
	for i, a := range own {
		list[i] = a.String()
	}
	return fmt.Errorf("%s is not an address of node %s: its configuration is for %s", from, node,
		strings.Join(list, ", "))
}
