// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/netip"

	"coelan.io/coelan/test/lab"
)

// briefSet is the name of the group that the gate compares.
const briefSet = "instructions"

// instructionRounds are enough for one turn of each without a disturbance.
const instructionRounds = 5

// measureInstructions counts the instructions of a brief set: a connection, an exchange and a KiB
// between two pods of a node, with policies off, enforced, and one for the server, and through a
// Service. The gate compares them with the figures in the tree.
func measureInstructions(ctx context.Context) ([]Result, error) {
	pods, err := podContenders(ctx)
	defer closeAll(pods)
	if err != nil {
		return nil, err
	}
	// With pods of its own, as directPort says.
	balanced := &contender{name: "service", lab: pods[0].lab}
	if err := balanced.addPods(ctx, balanced.lab.Nodes[0]); err != nil {
		return nil, err
	}
	balanced.balance()
	if err := balanced.await(ctx, serviceAddress); err != nil {
		return nil, err
	}
	all := []*contender{balanced}
	for _, c := range pods {
		if c.pods != nil {
			all = append(all, c)
		}
	}
	at := func(c *contender) netip.AddrPort {
		if c == balanced {
			return serviceAddress
		}
		return netip.AddrPortFrom(c.server.Address(lab.IPv4), serverPort)
	}
	var results []Result
	for _, tr := range traffics {
		rates, err := takeTurns(ctx, instructionRounds, all, tr, at)
		if err != nil {
			return nil, err
		}
		for i, c := range all {
			n, _ := tr.instructions(best(rates[i]))
			results = append(results, absolute(c.name+"-"+tr.name, tr.costUnit, n))
		}
	}
	return results, nil
}
