// SPDX-License-Identifier: Apache-2.0

//go:build integration

package northbound

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/ovn/remote"
	"coelan.io/coelan/internal/intenttest"
	"coelan.io/coelan/internal/ovntest"
)

// A database that takes no changes says so, and is written to when it does.
func TestReadOnly(t *testing.T) {
	o := ovntest.Start(t)
	o.StopNB()
	o.StartNB("--sync-from=unix:" + filepath.Join(o.Dir, "nothing"))
	c := start(t, []string{o.Remote("nb")}, intenttest.State(world()), nil)
	c.fails("read-only", ErrReadOnly)
	o.Appctl("ovsdb-server/disconnect-active-ovsdb-server")
	c.synced()
}

// A server that keeps its connections and answers nothing is noticed.
func TestSilence(t *testing.T) {
	o := ovntest.Start(t)
	c := start(t, []string{o.Remote("nb")}, intenttest.State(world()), func(o *Options) { o.Probe = time.Second })
	c.synced()
	o.FreezeNB()
	c.fails("the connection was lost", ErrUnreachable)
	o.ThawNB()
	c.synced()
}

// The leader of a RAFT cluster is used, and the next one when it is gone.
func TestCluster(t *testing.T) {
	members := ovntest.StartCluster(t)
	var remotes []string
	for _, m := range members {
		remotes = append(remotes, m.Remote)
	}
	w := world()
	c := start(t, remotes, intenttest.State(w), nil)
	c.synced()
	if err := members[0].Kill(); err != nil { // it made the cluster, and leads it
		t.Fatal(err)
	}
	c.fails("does not answer", ErrUnreachable)
	w.Ports = w.Ports[:4]
	c.set(intenttest.State(w))
	before := c.client.Transactions()
	for c.client.Transactions() == before {
		c.until("the next leader has the change", func(error) bool { return true })
	}
}

// authority signs certificates without names of hosts, as ovs-pki does.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.make("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) make(name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber, template.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for kind, block := range map[string]*pem.Block{
		"cert": {Type: "CERTIFICATE", Bytes: der}, "key": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(a.file(name, kind), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

func (a *authority) file(name, kind string) string { return filepath.Join(a.dir, name+"-"+kind+".pem") }

// A server of the authority is used, one of another is not.
func TestTLS(t *testing.T) {
	o, ca, other := ovntest.Start(t), newAuthority(t), newAuthority(t)
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	ca.make("server", &x509.Certificate{ExtKeyUsage: usage})
	ca.make("client", &x509.Certificate{ExtKeyUsage: usage})
	port := freePort(t)
	o.StopNB()
	o.StartNB(fmt.Sprintf("--remote=pssl:%d:127.0.0.1", port), "--private-key="+ca.file("server", "key"),
		"--certificate="+ca.file("server", "cert"), "--ca-cert="+ca.file("ca", "cert"))
	files := remote.TLSFiles{Certificate: ca.file("client", "cert"), PrivateKey: ca.file("client", "key"), Authority: other.file("ca", "cert")}
	config, err := files.Config()
	if err != nil {
		t.Fatal(err)
	}
	remotes := []string{fmt.Sprintf("ssl:127.0.0.1:%d", port)}
	c := start(t, remotes, intenttest.State(world()), func(o *Options) { o.TLS = config })
	c.fails("certificate signed by unknown authority", ErrUnreachable)
	data, err := os.ReadFile(ca.file("ca", "cert"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files.Authority, data, 0o600); err != nil { // the Secret is mended
		t.Fatal(err)
	}
	c.synced()
}

func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
