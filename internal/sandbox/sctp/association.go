// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// protocol is SCTP's number.
const protocol = "132"

// again is the time after which what was not answered is sent once more.
const again = 500 * time.Millisecond

// connect makes an association and breaks it.
func connect(ctx context.Context, to netip.AddrPort) error {
	network := "ip4:" + protocol
	if to.Addr().Is6() {
		network = "ip6:" + protocol
	}
	conn, err := net.DialIP(network, nil, &net.IPAddr{IP: to.Addr().AsSlice(), Zone: to.Addr().Zone()})
	if err != nil {
		return err
	}
	defer conn.Close()
	own := rand.Uint32() | 1
	c := client{conn: conn, packet: packet{source: uint16(32768 + rand.IntN(28232)), destination: to.Port()}}
	answer, err := c.exchange(ctx, chunkInit, initValue(own, nil), chunkInitAck, own)
	if err != nil {
		return err
	}
	tag, cookie, err := parseInit(answer.value)
	if err != nil || cookie == nil {
		return errors.Join(err, errors.New("INIT ACK without a cookie"))
	}
	c.tag = tag
	if _, err := c.exchange(ctx, chunkCookieEcho, cookie, chunkCookieAck, own); err != nil {
		return err
	}
	return c.send(chunkAbort, nil)
}

// client is the side that opens the association.
type client struct {
	conn *net.IPConn
	packet
}

func (c client) send(kind uint8, value []byte) error {
	p := c.packet
	p.kind, p.value = kind, value
	_, err := c.conn.Write(p.marshal())
	return err
}

// exchange sends a chunk until it is answered by one of the kind that is wanted.
func (c client) exchange(ctx context.Context, kind uint8, value []byte, want uint8, tag uint32) (packet, error) {
	end, _ := ctx.Deadline()
	buf := make([]byte, 1<<16)
	for ctx.Err() == nil {
		if err := c.send(kind, value); err != nil {
			return packet{}, err
		}
		next := time.Now().Add(again)
		if end.Before(next) {
			next = end
		}
		if err := c.conn.SetReadDeadline(next); err != nil {
			return packet{}, err
		}
		for {
			n, _, err := c.conn.ReadFromIP(buf) // without the header, of both families
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return packet{}, err
			}
			// Others of this machine hear the same packets.
			p, err := unmarshal(buf[:n])
			if err == nil && p.source == c.destination && p.destination == c.source && p.tag == tag && p.kind == want {
				return p, nil
			}
		}
	}
	return packet{}, context.DeadlineExceeded
}

// serve answers for the ports until the context ends.
func serve(ctx context.Context, ports map[uint16]bool) error {
	v4, err := net.ListenPacket("ip4:"+protocol, "0.0.0.0")
	if err != nil {
		return err
	}
	v6, err := net.ListenPacket("ip6:"+protocol, "::")
	if err != nil {
		return errors.Join(err, v4.Close())
	}
	defer context.AfterFunc(ctx, func() { v4.Close(); v6.Close() })()
	p4, p6 := ipv4.NewPacketConn(v4), ipv6.NewPacketConn(v6)
	if err := errors.Join(p4.SetControlMessage(ipv4.FlagDst, true),
		p6.SetControlMessage(ipv6.FlagDst, true)); err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		loop(ports, func(buf []byte) (int, func([]byte), error) {
			n, cm, from, err := p4.ReadFrom(buf)
			return n, func(answer []byte) {
				// The client asks again.
				_, _ = p4.WriteTo(answer, &ipv4.ControlMessage{Src: cm.Dst}, from)
			}, err
		})
	})
	wg.Go(func() {
		loop(ports, func(buf []byte) (int, func([]byte), error) {
			n, cm, from, err := p6.ReadFrom(buf)
			return n, func(answer []byte) {
				_, _ = p6.WriteTo(answer, &ipv6.ControlMessage{Src: cm.Dst}, from)
			}, err
		})
	})
	fmt.Println("Started SCTP server")
	wg.Wait()
	return nil
}

// loop answers what it reads. The state of an association is in its cookie: the tag of the client.
func loop(ports map[uint16]bool, read func([]byte) (int, func([]byte), error)) {
	buf := make([]byte, 1<<16)
	for {
		n, answer, err := read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		if p, err := unmarshal(buf[:n]); err == nil && ports[p.destination] {
			if reply, ok := respond(p); ok {
				answer(reply.marshal())
			}
		}
	}
}

// respond is a server's answer to a packet of the handshake.
func respond(p packet) (packet, bool) {
	reply := packet{source: p.destination, destination: p.source}
	switch p.kind {
	case chunkInit:
		tag, _, err := parseInit(p.value)
		if err != nil {
			return reply, false
		}
		cookie := binary.BigEndian.AppendUint32(nil, tag)
		reply.tag, reply.kind, reply.value = tag, chunkInitAck, initValue(rand.Uint32()|1, cookie)
	case chunkCookieEcho:
		if len(p.value) != 4 {
			return reply, false
		}
		reply.tag, reply.kind = binary.BigEndian.Uint32(p.value), chunkCookieAck
	default:
		return reply, false
	}
	return reply, true
}
