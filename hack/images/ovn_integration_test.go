// SPDX-License-Identifier: Apache-2.0

//go:build integration

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/child"
)

// members are the addresses of the test's servers, all of the loopback interface.
var members = []string{"127.0.65.1", "127.0.65.2", "127.0.65.3"}

// memberTimeout bounds every wait for a server.
const memberTimeout = time.Minute

// ovnHost is a node with a folder for what the image's entry keeps there.
type ovnHost struct {
	t       *testing.T
	dir     string
	address string
	tls     string
	exited  chan error
	process *os.Process
}

// environment is what the chart sets, for the given members.
func (h *ovnHost) environment(of []string) []string {
	return append(os.Environ(), "OVN_ADDRESS="+h.address, "OVN_MEMBERS="+strings.Join(of, ","), "OVN_TLS="+h.tls,
		"OVN_RUN="+filepath.Join(h.dir, "run"), "OVN_DATA="+filepath.Join(h.dir, "data"))
}

// start runs one of the programs until the test ends.
func (h *ovnHost) start(program string, of []string) {
	h.t.Helper()
	if err := os.MkdirAll(h.dir, 0o755); err != nil {
		h.t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(h.dir, program+".log"))
	if err != nil {
		h.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("sh", "coelan-ovn.sh", program)
	cmd.Env, cmd.Stdout, cmd.Stderr = h.environment(of), log, log
	if err := child.Start(cmd); err != nil {
		h.t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	h.process, h.exited = cmd.Process, exited
	h.t.Cleanup(func() { _ = cmd.Process.Kill() })
}

// kill ends the program that was started last as kill -9 does.
func (h *ovnHost) kill() {
	h.t.Helper()
	if err := h.process.Kill(); err != nil {
		h.t.Fatal(err)
	}
	if err := <-h.exited; err == nil {
		h.t.Errorf("%s has ended by itself", h.address)
	}
}

// ready waits until the program says that it does its work.
func (h *ovnHost) ready(program string) {
	h.t.Helper()
	h.until("is not ready", func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, "sh", "coelan-ovn.sh", "ready", program)
		cmd.Env = h.environment(nil)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

func (h *ovnHost) until(what string, try func(context.Context) error) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), memberTimeout)
	defer cancel()
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			log, _ := os.ReadFile(filepath.Join(h.dir, "nb.log"))
			h.t.Fatalf("%s %s: %v; its log:\n%s", h.address, what, err, log)
		}
	}
}

// nbctl asks this member's northbound database, be it the leader's or not, or any with of.
func (h *ovnHost) nbctl(of []string, args ...string) (out string) {
	h.t.Helper()
	var remotes []string
	for _, m := range of {
		remotes = append(remotes, "ssl:"+m+":6641")
	}
	h.until(fmt.Sprint("nbctl ", args), func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, "ovn-nbctl", append([]string{"--timeout=10", "--db=" + strings.Join(remotes, ","),
			"-p", h.tls + "/tls.key", "-c", h.tls + "/tls.crt", "-C", h.tls + "/ca.crt"}, args...)...)
		text, err := cmd.CombinedOutput()
		if out = string(text); err != nil {
			return fmt.Errorf("%w: %s", err, text)
		}
		return nil
	})
	return out
}

// certificates makes a folder as the chart mounts its Secret: one authority, one certificate.
func certificates(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	member := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "ovn"}, NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	keys := [2]*ecdsa.PrivateKey{}
	var err error
	for i := range keys {
		if keys[i], err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	write := func(file, kind string, der []byte, err error) {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, authority, authority, keys[0].Public(), keys[0])
	write("ca.crt", "CERTIFICATE", der, err)
	der, err = x509.CreateCertificate(rand.Reader, member, authority, keys[1].Public(), keys[0])
	write("tls.crt", "CERTIFICATE", der, err)
	der, err = x509.MarshalPKCS8PrivateKey(keys[1])
	write("tls.key", "PRIVATE KEY", der, err)
	return dir
}

// One member becomes three; one that is killed comes back with what the others have written
// meanwhile, and so does the first one after it has lost its disk: it makes no cluster of its own.
func TestOVNMembers(t *testing.T) {
	tls := certificates(t)
	dir, err := os.MkdirTemp("", "ovn") //nolint:usetesting // the paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var hosts []*ovnHost
	for i, m := range members {
		hosts = append(hosts, &ovnHost{t: t, dir: filepath.Join(dir, fmt.Sprint(i)), address: m, tls: tls})
	}
	a, b, c := hosts[0], hosts[1], hosts[2]
	a.start("nb", members[:1])
	a.ready("nb")
	a.nbctl(members[:1], "ls-add", "alone")
	a.kill()

	for _, h := range hosts {
		h.start("nb", members)
	}
	for _, h := range hosts {
		h.ready("nb")
	}
	has := func(h *ovnHost, names ...string) {
		t.Helper()
		h.until("has all switches", func(context.Context) error {
			got := h.nbctl([]string{h.address}, "--no-leader-only", "ls-list")
			for _, name := range names {
				if !strings.Contains(got, "("+name+")") {
					return fmt.Errorf("it has %s", got)
				}
			}
			return nil
		})
	}
	has(c, "alone")
	b.kill()
	a.nbctl([]string{members[0], members[2]}, "ls-add", "without-b")
	b.start("nb", members)
	b.ready("nb")
	has(b, "alone", "without-b")

	a.kill()
	if err := os.RemoveAll(a.dir); err != nil {
		t.Fatal(err)
	}
	b.nbctl(members[1:], "ls-add", "without-a")
	a.start("nb", members)
	a.ready("nb")
	has(a, "alone", "without-b", "without-a")
}

// A node that is none of the members has no server, and says how to choose nodes.
func TestOVNNoMember(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sh", "coelan-ovn.sh", "sb")
	h := &ovnHost{dir: t.TempDir(), address: "127.0.65.9"}
	cmd.Env = h.environment(members)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(string(out), "ovn.nodeSelector") {
		t.Errorf("%v: %s", err, out)
	}
}
