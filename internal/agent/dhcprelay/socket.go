// SPDX-License-Identifier: Apache-2.0

package dhcprelay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

// maxMessage is the most that a message has: that of an UDP datagram.
const maxMessage = 1 << 16

// sourceMAC is the one that answers come from: that of the node on its Networks.
var sourceMAC = reserved.RouterMAC(2).HardwareAddr()

// Conn is the socket that servers are asked by.
type Conn interface {
	ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error)
	WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error)
	Close() error
}

// listen opens a socket at an address of the node. It shares the port with no other program: one
// that is a relay or a server, too, would lose messages to it.
func listen(at netip.AddrPort) (Conn, error) {
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("UDP port %d, by which the node asks DHCP servers as a relay, is in use by another "+
			"program: end that, or have it keep off the node's address %s (ss -lunp 'sport = :%[1]d' names it)",
			at.Port(), at.Addr())
	}
	if err != nil {
		return nil, fmt.Errorf("asking DHCP servers as a relay: %w", err)
	}
	return c, nil
}

// Run ends the Relay when ctx ends. Until then it closes the socket when no Network needs it.
func (r *Relay) Run(ctx context.Context) error {
	for {
		s := r.Intent.State()
		r.closeUnneeded(s)
		select {
		case <-ctx.Done():
			r.mu.Lock()
			r.ended = true
			r.shut()
			r.mu.Unlock()
			r.readers.Wait()
			return nil
		case <-s.Replaced():
		}
	}
}

func (r *Relay) closeUnneeded(s *intent.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.socket == nil {
		return
	}
	for n := range s.Networks().All() {
		if n.Relay.Enabled {
			return
		}
	}
	r.shut()
}

// open has the socket be at an address.
func (r *Relay) open(at netip.AddrPort) error {
	if r.socket != nil && r.at == at {
		return nil
	}
	r.shut()
	if r.ended {
		return net.ErrClosed
	}
	socket, err := r.Listen(at)
	if err != nil {
		if r.failure != err.Error() && r.Warn(reasonNotWorking, err) {
			r.failure = err.Error()
		}
		return err
	}
	r.socket, r.at, r.failure = socket, at, ""
	r.readers.Go(func() { r.read(socket) })
	return nil
}

// shut closes the socket, if it is open; its reader ends then.
func (r *Relay) shut() {
	if r.socket == nil {
		return
	}
	if err := r.socket.Close(); err != nil {
		r.Log.Warn("cannot close the socket of the DHCP relay", "err", err)
	}
	r.socket = nil
}

// read takes what comes to a socket until that is closed.
func (r *Relay) read(socket Conn) {
	b := make([]byte, maxMessage)
	for {
		n, from, err := socket.ReadFromUDPAddrPort(b)
		if err == nil {
			r.received(from, b[:n])
			continue
		}
		r.mu.Lock()
		if r.socket == socket { // the next question opens another one
			r.Log.Warn("cannot read what DHCP servers answer", "err", err)
			r.shut()
		}
		r.mu.Unlock()
		return
	}
}
