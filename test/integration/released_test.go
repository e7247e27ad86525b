// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
)

// policiesOfNextPod gives the address of a pod that has gone, with a connection that lives, to a
// pod that may send nothing. What that sends looks like answers in the connection.
func policiesOfNextPod(t *testing.T, w *world, b *rulebook) {
	const clientPort, serverPort = 7000, 7001
	server, err := w.n1.NewPod("server")
	if err != nil {
		t.Fatal(err)
	}
	b.isolate(server, intent.Egress)
	b.publish(t)
	if err := server.Add(t.Context()); err != nil {
		t.Fatal(err)
	}
	address := server.Address(lab.IPv4)
	at, client := netip.AddrPortFrom(address, serverPort), netip.AddrPortFrom(w.c.Address(lab.IPv4), clientPort)
	var ask *net.UDPConn
	if err := w.c.Do(func() (err error) {
		ask, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(client), net.UDPAddrFromAddrPort(at))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer ask.Close()
	answer := func(p *lab.Pod) net.PacketConn {
		var c net.PacketConn
		if err := p.Do(func() (err error) { c, err = net.ListenPacket("udp", at.String()); return err }); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	// The connection lives: answers pass although the server may begin nothing.
	serves := answer(server)
	becomes(t, "answers", func(ctx context.Context) error {
		if _, err := ask.Write([]byte("?")); err != nil {
			return err
		}
		if _, err := serves.WriteTo([]byte("!"), net.UDPAddrFromAddrPort(client)); err != nil {
			return err
		}
		_ = ask.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		_, err := ask.Read(make([]byte, 10))
		return err
	})

	server.End() // without a word
	if err := server.Del(t.Context()); err != nil {
		t.Fatal(err)
	}
	delete(b.subjects, server)
	next, err := w.n1.NewPodAs(lab.PodSpec{Name: "next", Annotations: map[string]string{
		asksNFN: fmt.Sprintf(`{"type":"ovn4nfv","interface":[{"name":"default","interface":"eth0","ipAddress":%q}]}`, address),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = next.Delete(context.WithoutCancel(t.Context())) })
	b.isolate(next, intent.Egress)
	b.publish(t)
	if err := next.Add(t.Context()); err != nil {
		t.Fatal(err)
	}
	if next.Address(lab.IPv4) != address {
		t.Fatalf("the next pod has %s, not %s", next.Address(lab.IPv4), address)
	}
	speaks := answer(next)
	speak := func() {
		if _, err := speaks.WriteTo([]byte("!"), net.UDPAddrFromAddrPort(client)); err != nil {
			t.Error(err)
		}
	}
	received := wire(t, w.c.Host)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 10 {
			speak()
			time.Sleep(30 * time.Millisecond)
		}
	}()
	if err := received.Quiet(500*time.Millisecond, from(next, lab.IPv4)); err != nil {
		t.Errorf("what the next pod sends passes as answers in a connection of the last one: %v", err)
	}
	<-ended
	b.open(next)
	b.publish(t)
	becomes(t, "the same packets where they are allowed", func(ctx context.Context) error {
		speak()
		ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		_, err := received.Wait(ctx, from(next, lab.IPv4))
		return err
	})
	delete(b.subjects, next)
	b.publish(t)
}
