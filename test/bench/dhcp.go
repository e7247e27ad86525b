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
	dhcpMachines = 1000
	dhcpRounds   = 3
	// dhcpRate is how many machines begin in a second, whether or not earlier ones have their
	// addresses: the load of perfdhcp -r.
	dhcpRate    = 200
	dhcpNetwork = "machines"
	dhcpGiveUp  = 10 * time.Second
)

// dhcpClient is a machine that asks.
type dhcpClient struct {
	*nclient4.Client
	address netip.Addr
}

// measureDHCP measures how long machines wait for an answer of their node's agent: one machine
// after the other, many in each second, and all machines of a node that start at the same moment.
func measureDHCP(ctx context.Context) ([]Result, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: 1})
	defer l.Close()
	if err != nil {
		return nil, err
	}
	l.API.AddNetwork(dhcpNetwork, v1alpha1.NetworkSpec{
		Subnets: []v1alpha1.Subnet{{CIDR: "10.90.0.0/16"}}, DHCP: &v1alpha1.DHCP{},
	})
	clients, err := addDHCPClients(ctx, l)
	for _, c := range clients {
		defer c.Close()
	}
	if err != nil {
		return nil, err
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
	load, _, err := dhcpBegun(ctx, clients, time.Second/dhcpRate)
	if err != nil {
		return nil, err
	}
	crowd, all, err := dhcpBegun(ctx, clients, 0)
	if err != nil {
		return nil, err
	}
	return []Result{
		absolute("dhcp-answer-p50", "ms", percentile(alone, 0.5)),
		absolute("dhcp-answer-p99", "ms", percentile(alone, 0.99)).atMost(5, 2),
		absolute(fmt.Sprintf("dhcp-%d-at-%d-p50", dhcpMachines, dhcpRate), "ms", percentile(load, 0.5)),
		absolute(fmt.Sprintf("dhcp-%d-at-%d-p99", dhcpMachines, dhcpRate), "ms", percentile(load, 0.99)).atMost(5, 2),
		absolute(fmt.Sprintf("dhcp-%d-at-once-p50", dhcpMachines), "ms", percentile(crowd, 0.5)),
		absolute(fmt.Sprintf("dhcp-%d-at-once-all", dhcpMachines), "ms", percentile(all, 0.5)),
	}, nil
}

// addDHCPClients adds machines and their Ports, which are plugged in by one transaction.
func addDHCPClients(ctx context.Context, l *lab.Lab) (clients []dhcpClient, err error) {
	guests := map[string]*lab.Guest{}
	for i := range dhcpMachines {
		name := fmt.Sprintf("m%d", i)
		mac := net.HardwareAddr{0x52, 0x54, 0, 0x90, byte(i >> 8), byte(i)}
		address := netip.AddrFrom4([4]byte{10, 90, 1 + byte(i>>8), byte(i)})
		l.API.AddPort("bench", name, dhcpNetwork, mac.String(), address.String())
		guest, err := l.Nodes[0].NewGuest(name, mac, nil)
		if err != nil {
			return clients, err
		}
		guests["bench/"+name] = guest
		c := dhcpClient{address: address}
		if err := guest.Do(func() (err error) {
			c.Client, err = nclient4.New("eth0",
				nclient4.WithTimeout(dhcpGiveUp/dhcpRetries), nclient4.WithRetry(dhcpRetries))
			return err
		}); err != nil {
			return clients, err
		}
		clients = append(clients, c)
	}
	return clients, l.Nodes[0].PlugAll(ctx, guests)
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

// dhcpBegun has all machines ask, some times, each of them so long after the one before, without a
// wait for that: milliseconds for each answer, and each time until all have their addresses.
func dhcpBegun(ctx context.Context, clients []dhcpClient, apart time.Duration) (took, all []float64, err error) {
	var mu sync.Mutex
	for range dhcpRounds {
		var running sync.WaitGroup
		began := time.Now()
		for i, c := range clients {
			time.Sleep(time.Until(began.Add(time.Duration(i) * apart)))
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
