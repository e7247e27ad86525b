// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"fmt"
	"net/netip"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
)

// nodePlan is a Planner that knows the default Network only.
type nodePlan struct{}

func (p nodePlan) Plan(_ context.Context, ask Request) ([]attachment.Plan, error) {
	if ask.Network != "" && ask.Network != intent.DefaultNetworkName {
		return nil, &PlanError{Reason: v1alpha1.ReasonNetworkNotFound, Message: fmt.Sprintf("Network %s is not known", ask.Network)}
	}
	ask.DefaultRoute = !ask.Delegate()
	return []attachment.Plan{{Spec: attachment.Spec{
		Key: attachment.Key{IfName: ask.IfName}, NetworkName: intent.DefaultNetworkName, NetworkID: intent.DefaultNetwork,
		Primary: !ask.Delegate(),
	}, Requested: ask.Requested}}, nil
}

func (p nodePlan) Ranges(_ context.Context, network string, _ []intent.NetworkSubnet, _ []netip.Prefix) ([]ipam.Range, error) {
	return nil, &PlanError{Reason: v1alpha1.ReasonNetworkNotFound, Message: fmt.Sprintf("Network %s is not known", network)}
}

func (p nodePlan) Claim(context.Context, attachment.Attachment) error   { return nil }
func (p nodePlan) Unclaim(context.Context, attachment.Attachment) error { return nil }
