// SPDX-License-Identifier: Apache-2.0

// Package podnet makes, checks and removes the interface of a pod: a veth pair with one end
// in the pod's network namespace and the other in the agent's. It uses netlink and ioctl and
// runs no other program.
package podnet

import (
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

// hostNamespace is what errors call the namespace of the host's ends.
const hostNamespace = "the host's network namespace"

// Interface is an attachment as this node makes it.
type Interface struct {
	attachment.Attachment
	// TXOffload leaves checksums to the datapath. Without it, the pod's kernel computes
	// them before a packet leaves.
	TXOffload bool
}

// HostMAC is the address of the host's end, which nothing uses. It is set because
// some hosts give another to an interface that the kernel has chosen one for.
func HostMAC(pod intent.MAC) intent.MAC {
	pod[1] ^= 1
	return pod
}

// Plumber works between the network namespace that it was made in and those of pods.
// Its methods are safe for concurrent use.
type Plumber struct {
	hostNS    netns.NsHandle
	hostID    fileID
	host      *netlink.Handle
	raw       map[int]*nl.SocketHandle
	deletions *deletions
	sysctlDir string

	background sync.WaitGroup
}

// New returns a Plumber for the network namespace of the calling thread. The kernel's
// settings are written below sysctlDir: /proc/sys, or where a container has it writable.
func New(sysctlDir string) (*Plumber, error) {
	p := &Plumber{hostNS: netns.None(), sysctlDir: sysctlDir}
	if err := p.open(); err != nil {
		p.Close()
		return nil, fmt.Errorf("pods' interfaces: %w", err)
	}
	return p, nil
}

func (p *Plumber) open() (err error) {
	if p.hostNS, err = netns.Get(); err != nil {
		return fmt.Errorf("own network namespace: %w", err)
	}
	if p.hostID, err = idOf(uintptr(p.hostNS)); err != nil {
		return fmt.Errorf("own network namespace: %w", err)
	}
	if p.host, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("netlink socket: %w", err)
	}
	if p.raw, err = rawSocket(); err != nil {
		return fmt.Errorf("netlink socket: %w", err)
	}
	if p.deletions, err = hearDeletions(); err != nil {
		return fmt.Errorf("netlink subscription: %w", err)
	}
	return nil
}

// Close ends the use of the Plumber.
func (p *Plumber) Close() {
	p.background.Wait()
	if p.deletions != nil {
		p.deletions.close()
	}
	for _, s := range p.raw {
		s.Close()
	}
	if p.host != nil {
		p.host.Close()
	}
	if p.hostNS.IsOpen() {
		_ = p.hostNS.Close() // only its number is given back
	}
}

// Create makes the pair, and sets the host's end up. On an error nothing was made.
// Errors: *NetnsError; *TakenError if one of the names is taken by another interface. A
// pair that an earlier call left under the same host name is replaced.
func (p *Plumber) Create(i Interface) error {
	pod, err := p.openPod(i.Netns)
	if err != nil {
		return err
	}
	defer pod.Close()
	err = p.addPair(i, int(pod.Fd()))
	if errors.Is(err, unix.EEXIST) {
		// The kernel does not say which of the two names it means.
		if err := p.Remove(i.HostInterface); err != nil {
			return err
		}
		if err = p.addPair(i, int(pod.Fd())); errors.Is(err, unix.EEXIST) {
			return &TakenError{Name: i.IfName, Where: "network namespace " + i.Netns}
		}
	}
	if err != nil {
		return fmt.Errorf("make interfaces %s and %s: %w", i.HostInterface, i.IfName, err)
	}
	return nil
}

func (p *Plumber) addPair(i Interface, podFD int) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.Group = i.HostInterface, i.MTU, reserved.LinkGroup
	attrs.HardwareAddr = HostMAC(i.MAC).HardwareAddr()
	// One queue each: a veth would get one for every CPU, which takes longer to make.
	attrs.NumTxQueues, attrs.NumRxQueues = 1, 1
	pair := &netlink.Veth{
		LinkAttrs: attrs,
		PeerName:  i.IfName, PeerHardwareAddr: i.MAC.HardwareAddr(),
		PeerMTU: uint32(i.MTU), PeerTxQLen: -1, PeerNamespace: netlink.NsFd(podFD),
	}
	if err := p.host.LinkAdd(pair); err != nil {
		return err
	}
	err := p.silence(pair)
	if err == nil {
		err = p.host.LinkSetUp(pair)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("set %s up: %w", i.HostInterface, err), p.host.LinkDel(pair))
	}
	return nil
}

// Existing lists the host's ends that are there.
func (p *Plumber) Existing() (map[string]bool, error) {
	links, err := p.host.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	names := map[string]bool{}
	for _, link := range links {
		if link.Type() == "veth" && link.Attrs().Group == reserved.LinkGroup {
			names[link.Attrs().Name] = true
		}
	}
	return names, nil
}

func isNotFound(err error) bool {
	var notFound netlink.LinkNotFoundError
	return errors.As(err, &notFound)
}

// fileID identifies what a file is, such as a namespace.
type fileID struct{ dev, ino uint64 }

func idOf(fd uintptr) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(fd), &st); err != nil {
		return fileID{}, err
	}
	return fileID{st.Dev, st.Ino}, nil
}
