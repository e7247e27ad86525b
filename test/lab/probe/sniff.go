// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Wire is a raw socket on one interface: it sends frames as they are and sees
// every frame that arrives, also those for others.
type Wire struct {
	file *os.File
	wg   sync.WaitGroup

	mu     sync.Mutex
	frames []Frame
	news   chan struct{} // closed at the next frame
}

// OpenWire starts to listen on an interface.
func OpenWire(ns Netns, link string) (*Wire, error) {
	w := &Wire{news: make(chan struct{})}
	if err := ns.Do(func() error { return w.open(link) }); err != nil {
		return nil, fmt.Errorf("raw socket on %s: %w", link, err)
	}
	w.wg.Go(w.listen)
	return w, nil
}

func (w *Wire) open(link string) error {
	i, err := net.InterfaceByName(link)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	w.file = os.NewFile(uintptr(fd), "packet:"+link)
	all := uint16(unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8)
	err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	if err == nil {
		err = unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
			&unix.PacketMreq{Ifindex: int32(i.Index), Type: unix.PACKET_MR_PROMISC})
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index})
	}
	if err != nil {
		w.file.Close()
	}
	return err
}

func (w *Wire) listen() {
	buf := make([]byte, 70_000)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return
		}
		if n < 14 {
			continue
		}
		w.mu.Lock()
		w.frames = append(w.frames, append(Frame(nil), buf[:n]...))
		close(w.news)
		w.news = make(chan struct{})
		w.mu.Unlock()
	}
}

// Send puts a frame on the wire.
func (w *Wire) Send(f Frame) error {
	_, err := w.file.Write(f)
	return err
}

// Frames are the frames that arrived so far and that match.
func (w *Wire) Frames(match func(Frame) bool) []Frame {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []Frame
	for _, f := range w.frames {
		if match(f) {
			out = append(out, f)
		}
	}
	return out
}

// Wait returns the first frame that matches; it is an error that none arrives
// within the bound.
func (w *Wire) Wait(ctx context.Context, match func(Frame) bool) (Frame, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	for {
		w.mu.Lock()
		news := w.news
		w.mu.Unlock()
		if found := w.Frames(match); len(found) > 0 {
			return found[0], nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, errors.New("no such frame arrived")
		}
	}
}

// Quiet fails if a frame that matches has arrived, or arrives within d.
func (w *Wire) Quiet(d time.Duration, match func(Frame) bool) error {
	over := time.After(d)
	for {
		w.mu.Lock()
		news := w.news
		w.mu.Unlock()
		if found := w.Frames(match); len(found) > 0 {
			return fmt.Errorf("a frame arrived: %x", []byte(found[0]))
		}
		select {
		case <-news:
		case <-over:
			return nil
		}
	}
}

// Close ends the socket.
func (w *Wire) Close() {
	w.file.Close()
	w.wg.Wait()
}
