// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
)

// bootFile is what the machine of TestNetworkBoot is to load: more than one block of TFTP, and the
// last one is not full.
var bootFile = bytes.Repeat([]byte("boot me "), 150)

// TestNetworkBoot has a machine that knows nothing load the file which it is told from the server
// which it is told, as the firmware of a card does.
func TestNetworkBoot(t *testing.T) {
	w := start(t, lab.Options{})
	ctx := within(t, 2*time.Minute)
	const server, name = "10.78.0.69", "boot/pxelinux.0"
	w.API.AddNetwork("boot", v1alpha1.NetworkSpec{
		Subnets: subnets("10.78.0.0/24"), DHCP: &v1alpha1.DHCP{NextServer: server, BootFile: name},
	})
	guest := func(n *lab.Node, name, address string, addresses ...netip.Prefix) *lab.Guest {
		t.Helper()
		mac := intent.MAC{0x52, 0x54, 0, 0x78, 0, address[len(address)-1]}
		w.API.AddPort("lab", name, "boot", mac.String(), address)
		g, err := n.AddGuest(ctx, name, "lab/"+name, mac.HardwareAddr(), addresses)
		if err != nil {
			t.Fatal(err)
		}
		awaitPort(ctx, t, w, "lab/"+name, func(p *v1alpha1.Port) bool { return p.Status.Phase == v1alpha1.PortBound })
		return g
	}
	machine := guest(w.n1, "machine", "10.78.0.50")
	serveFile(t, guest(w.n2, "server", server, netip.MustParsePrefix(server+"/24")), name, bootFile)

	loaded := filepath.Join(t.TempDir(), "loaded")
	path, file := script(t, `[ "$1" = bound ] || exit 0`,
		"ip address add $ip/$mask dev $interface\nbusybox tftp -g -r \"$boot_file\" -l "+loaded+" \"$siaddr\"")
	if out, err := machine.Run(ctx, "/bin/busybox", "udhcpc", "-i", "eth0", "-f", "-n", "-q", "-t", "5", "-T", "1", "-s", path,
		"-O", "bootfile", "-O", "tftp"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	wantReported(t, reported(t, file), map[string]string{"siaddr": server, "tftp": server, "boot_file": name})
	if got, err := os.ReadFile(loaded); err != nil || !bytes.Equal(got, bootFile) {
		t.Errorf("the machine has loaded %d bytes, %v; want the %d of the file", len(got), err, len(bootFile))
	}
}

// serveFile serves one file by TFTP (RFC 1350) from a host until the test ends.
func serveFile(t *testing.T, g *lab.Guest, name string, content []byte) {
	t.Helper()
	var conn net.PacketConn
	err := g.Do(func() (err error) {
		conn, err = net.ListenPacket("udp4", ":69") //nolint:noctx // it opens at once
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		conn.Close()
		<-ended
	})
	go func() {
		defer close(ended)
		const readRequest, data, ack, size = 1, 3, 4, 512
		request := append([]byte{0, readRequest}, name+"\x00"...)
		for b := make([]byte, size); ; {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			block := 1
			switch {
			case bytes.HasPrefix(b[:n], request):
			case n == 4 && b[1] == ack:
				block += int(binary.BigEndian.Uint16(b[2:]))
			default:
				continue
			}
			if at := (block - 1) * size; at <= len(content) {
				answer := binary.BigEndian.AppendUint16([]byte{0, data}, uint16(block))
				_, _ = conn.WriteTo(append(answer, content[at:min(at+size, len(content))]...), from)
			}
		}
	}()
}
