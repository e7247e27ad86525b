// SPDX-License-Identifier: Apache-2.0

// Package refuser is an OpenFlow proxy in front of a real switch that refuses messages of a test's
// choice, as a switch does that lacks a feature or is out of room.
package refuser

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"

	"coelan.io/coelan/openflow"
)

// Refuse says with which error a message is refused; nil: it is not.
type Refuse func(openflow.Message) *openflow.Error

// Proxy stands between a controller and a switch. A message in a bundle is refused as Open vSwitch
// does: when it is added, or, as AtCommit says, when the bundle is committed, and then the first
// one only.
type Proxy struct {
	dir, target string
	listener    net.Listener
	running     sync.WaitGroup

	mu       sync.Mutex
	refuse   Refuse
	atCommit bool
	refused  int
	conns    map[net.Conn]bool
}

// Start makes a copy of a run directory of Open vSwitch in dir, which must be empty, in which the
// management socket of a bridge is the proxy's.
func Start(dir, runDir, bridge string) (*Proxy, error) {
	socket := bridge + ".mgmt"
	entries, err := os.ReadDir(runDir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Name() == socket {
			continue
		}
		if err := os.Symlink(filepath.Join(runDir, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, socket))
	if err != nil {
		return nil, err
	}
	p := &Proxy{dir: dir, target: filepath.Join(runDir, socket), listener: l, conns: map[net.Conn]bool{}}
	p.running.Go(p.accept)
	return p, nil
}

// Dir is the run directory for the controller.
func (p *Proxy) Dir() string { return p.dir }

// Set says what is refused from now on; nil: nothing.
func (p *Proxy) Set(r Refuse, atCommit bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse, p.atCommit, p.refused = r, atCommit, 0
}

// Refused is how many messages were refused since Set.
func (p *Proxy) Refused() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

// Break closes all connections.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// Close ends the proxy.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.Break()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		sw, err := net.Dial("unix", p.target)
		if err != nil {
			_ = client.Close() // the controller tries again, as it would without the proxy
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[sw] = true, true
		p.mu.Unlock()
		l := &link{proxy: p, client: client, sw: sw, bundles: map[uint32]refusal{}}
		p.running.Go(l.fromController)
		p.running.Go(l.fromSwitch)
	}
}

// verdict is the error of a message, if it is refused.
func (p *Proxy) verdict(m openflow.Message) (e *openflow.Error, atCommit bool) {
	p.mu.Lock()
	refuse, atCommit := p.refuse, p.atCommit
	p.mu.Unlock()
	if refuse == nil || m == nil {
		return nil, false
	}
	if e = refuse(m); e != nil {
		p.mu.Lock()
		p.refused++
		p.mu.Unlock()
	}
	return e, atCommit
}

// link is one connection of a controller.
type link struct {
	proxy      *Proxy
	client, sw net.Conn
	toClient   sync.Mutex
	bundles    map[uint32]refusal // by number, those of which the commit is refused
}

// refusal is an error and the message that it is about.
type refusal struct {
	xid uint32
	err *openflow.Error
}

func (l *link) close() {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	for _, c := range []net.Conn{l.client, l.sw} {
		_ = c.Close()
		delete(l.proxy.conns, c)
	}
}

func (l *link) fromSwitch() {
	defer l.close()
	r := bufio.NewReader(l.sw)
	for {
		b, err := next(r)
		if err != nil || l.send(b) != nil {
			return
		}
	}
}

func (l *link) send(b []byte) error {
	l.toClient.Lock()
	defer l.toClient.Unlock()
	_, err := l.client.Write(b)
	return err
}

func (l *link) fromController() {
	defer l.close()
	r := bufio.NewReader(l.client)
	for {
		b, err := next(r)
		if err != nil {
			return
		}
		if pass, err := l.inspect(b); err != nil || !pass {
			if err != nil {
				return
			}
			continue
		}
		if _, err := l.sw.Write(b); err != nil {
			return
		}
	}
}

// inspect answers a message that is refused; pass says that it goes on to the switch.
func (l *link) inspect(b []byte) (pass bool, err error) {
	xid, m, err := openflow.Decode(b)
	if err != nil {
		return true, nil // what the switch makes of it is the controller's business
	}
	switch m := m.(type) {
	case *openflow.BundleAdd:
		e, atCommit := l.proxy.verdict(m.Message)
		if e == nil {
			return true, nil
		}
		if !atCommit {
			return false, l.answer(xid, e)
		}
		if _, before := l.bundles[m.BundleID]; !before {
			l.bundles[m.BundleID] = refusal{xid, e}
		}
		return false, nil // the bundle is discarded in the end
	case *openflow.BundleControl:
		bad, ok := l.bundles[m.BundleID]
		delete(l.bundles, m.BundleID)
		if !ok || m.Type != openflow.BundleCommitRequest {
			return true, nil
		}
		discard, err := openflow.AppendMessage(nil, xid, &openflow.BundleControl{
			BundleID: m.BundleID, Type: openflow.BundleDiscardRequest, Flags: m.Flags,
		})
		if err != nil {
			return false, err
		}
		if err := l.answer(bad.xid, bad.err); err != nil {
			return false, err
		}
		const bundleFailed, messageFailed = 17, 13
		if err := l.answer(xid, &openflow.Error{Type: bundleFailed, Code: messageFailed}); err != nil {
			return false, err
		}
		_, err = l.sw.Write(discard)
		return false, err
	}
	if e, _ := l.proxy.verdict(m); e != nil {
		return false, l.answer(xid, e)
	}
	return true, nil
}

func (l *link) answer(xid uint32, e *openflow.Error) error {
	b, err := openflow.AppendMessage(nil, xid, e)
	if err != nil {
		return err
	}
	return l.send(b)
}

// next reads one message.
func next(r io.Reader) ([]byte, error) {
	b := make([]byte, openflow.HeaderLen)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint16(b[2:]))
	if length < len(b) {
		return nil, fmt.Errorf("a message of %d bytes", length)
	}
	b = append(b, make([]byte, length-len(b))...)
	_, err := io.ReadFull(r, b[openflow.HeaderLen:])
	return b, err
}
