// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/reserved"
)

// Remove deletes a pair by its host's end; that it is not there is no error. When it returns, both
// ends are gone from both namespaces. A *TakenError says that an interface of the name is not one
// that Create made.
//
// The kernel makes the caller wait until no CPU can still use what it has freed, some 20 ms. Remove
// leaves that to another goroutine and returns when the kernel has notified that the interface is
// gone, which is fifty times sooner.
func (p *Plumber) Remove(hostName string) error {
	link, err := p.host.LinkByName(hostName)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("interface %s: %w", hostName, err)
	}
	if link.Type() != "veth" || link.Attrs().Group != reserved.LinkGroup {
		return &TakenError{Name: hostName, Where: hostNamespace}
	}
	index := int32(link.Attrs().Index)
	gone := p.deletions.expect(index)
	defer p.deletions.forget(index)
	deleted := make(chan error, 1)
	p.background.Go(func() { deleted <- p.delete(link) })
	select {
	case <-gone:
		return nil
	case err := <-deleted:
		if err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("delete interface %s: %w", hostName, err)
		}
		return nil
	}
}

// delete uses a socket of its own: requests on one socket wait for each other.
func (p *Plumber) delete(link netlink.Link) error {
	h, err := netlink.NewHandleAt(p.hostNS, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	return h.LinkDel(link)
}

// deletions receives from the kernel which interfaces of a namespace are deleted.
type deletions struct {
	socket *nl.NetlinkSocket
	ended  chan struct{}

	mu      sync.Mutex
	waiting map[int32]chan struct{} // by index; closed when it is gone
}

// hearDeletions listens in the namespace of the calling thread until close.
func hearDeletions() (*deletions, error) {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK)
	if err != nil {
		return nil, err
	}
	d := &deletions{socket: socket, ended: make(chan struct{}), waiting: map[int32]chan struct{}{}}
	go func() {
		defer close(d.ended)
		d.listen()
	}()
	return d, nil
}

func (d *deletions) close() {
	d.socket.Close()
	<-d.ended
}

func (d *deletions) expect(index int32) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting[index] == nil {
		d.waiting[index] = make(chan struct{})
	}
	return d.waiting[index]
}

func (d *deletions) forget(index int32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.waiting, index)
}

func (d *deletions) listen() {
	for {
		messages, from, err := d.socket.Receive()
		if errors.Is(err, unix.ENOBUFS) {
			continue // events were lost: the end of the deletion is reported all the same
		}
		if err != nil {
			return
		}
		for _, m := range messages {
			// A bridge also tells of ports that leave it: those have its family.
			if m.Header.Type == unix.RTM_DELLINK && from.Pid == 0 && m.Data[0] == unix.AF_UNSPEC {
				d.tell(nl.DeserializeIfInfomsg(m.Data).Index)
			}
		}
	}
}

func (d *deletions) tell(index int32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if gone := d.waiting[index]; gone != nil {
		close(gone)
		delete(d.waiting, index)
	}
}
