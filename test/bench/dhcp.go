// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/test/lab"
)

// Machines that ask for their addresses, and how often all of them do: a machine may send twenty
// requests in a second.
const (
	dhcpMachines = 200
	dhcpRounds   = 5
	dhcpNetwork  = "machines"
	dhcpGiveUp   = 10 * time.Second
)

// dhcpClient is a machine that asks.
type dhcpClient struct {
	*nclient4.Client
	address netip.Addr
}

// measureDHCP measures how long machines wait for an answer of their node's agent: one machine
// after the other, and all machines of a node that start at the same moment.
func measureDHCP(ctx context.Context) ([]Result, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: 1})
	defer l.Close()
	if err != nil {
		return nil, err
	}
	l.API.AddNetwork(dhcpNetwork, v1alpha1.NetworkSpec{
		Subnets: []v1alpha1.Subnet{{CIDR: "10.90.0.0/16"}}, DHCP: &v1alpha1.DHCP{},
	})
	var clients []dhcpClient
	for i := range dhcpMachines {
		c, err := addDHCPClient(ctx, l, i)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		clients = append(clients, c)
	}
	for _, c := range clients { // until its Port has flows, a machine's requests are lost
		if _, err := c.lease(ctx); err != nil {
			return nil, err
		}
	}
	alone, err := dhcpInTurn(ctx, clients)
	if err != nil {
		return nil, err
	}
	crowd, all, err := dhcpTogether(ctx, clients)
	if err != nil {
		return nil, err
	}
	return []Result{
		absolute("dhcp-answer-p50", "ms", percentile(alone, 0.5)),
		absolute("dhcp-answer-p99", "ms", percentile(alone, 0.99)).atMost(5, 2),
		absolute(fmt.Sprintf("dhcp-%d-at-once-p50", dhcpMachines), "ms", percentile(crowd, 0.5)),
		absolute(fmt.Sprintf("dhcp-%d-at-once-all", dhcpMachines), "ms", percentile(all, 0.5)),
	}, nil
}

// addDHCPClient adds a machine and its Port.
func addDHCPClient(ctx context.Context, l *lab.Lab, i int) (dhcpClient, error) {
	name := fmt.Sprintf("m%d", i)
	mac := net.HardwareAddr{0x52, 0x54, 0, 0x90, byte(i >> 8), byte(i)}
	address := netip.AddrFrom4([4]byte{10, 90, 1 + byte(i>>8), byte(i)})
	l.API.AddPort("bench", name, dhcpNetwork, mac.String(), address.String())
	guest, err := l.Nodes[0].AddGuest(ctx, name, "bench/"+name, mac, nil)
	if err != nil {
		return dhcpClient{}, err
	}
	c := dhcpClient{address: address}
	err = guest.Do(func() (err error) {
		c.Client, err = nclient4.New("eth0",
			nclient4.WithTimeout(dhcpGiveUp/dhcpRetries), nclient4.WithRetry(dhcpRetries))
		return err
	})
	return c, err
}

// dhcpRetries is how often a client sends each request at most.
const dhcpRetries = 10

// lease has the machine discover and request its address. It returns how long each of both took.
func (c dhcpClient) lease(ctx context.Context) ([]float64, error) {
	began := time.Now()
	offer, err := c.DiscoverOffer(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: no offer: %w", c.address, err)
	}
	offered := time.Now()
	lease, err := c.RequestFromOffer(ctx, offer)
	if err != nil {
		return nil, fmt.Errorf("%s: no lease: %w", c.address, err)
	}
	ack := lease.ACK
	got, _ := netip.AddrFromSlice(ack.YourIPAddr)
	if got.Unmap() != c.address || ack.MessageType() != dhcpv4.MessageTypeAck {
		return nil, fmt.Errorf("%s: %s instead", c.address, ack.Summary())
	}
	return []float64{milliseconds(offered.Sub(began)), milliseconds(time.Since(offered))}, nil
}

// dhcpInTurn has one machine after the other ask, in milliseconds for each answer.
func dhcpInTurn(ctx context.Context, clients []dhcpClient) (took []float64, err error) {
	for range dhcpRounds {
		for _, c := range clients {
			each, err := c.lease(ctx)
			if err != nil {
				return nil, err
			}
			took = append(took, each...)
		}
	}
	return took, nil
}

// dhcpTogether has all machines ask at the same moment, some times: milliseconds for each answer,
// and each time until all have their addresses.
func dhcpTogether(ctx context.Context, clients []dhcpClient) (took, all []float64, err error) {
	var mu sync.Mutex
	for range dhcpRounds {
		var running sync.WaitGroup
		began := time.Now()
		for _, c := range clients {
			running.Go(func() {
				each, failed := c.lease(ctx)
				mu.Lock()
				defer mu.Unlock()
				took, err = append(took, each...), errors.Join(err, failed)
			})
		}
		running.Wait()
		if err != nil {
			return nil, nil, err
		}
		all = append(all, milliseconds(time.Since(began)))
	}
	return took, all, nil
}
