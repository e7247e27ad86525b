// SPDX-License-Identifier: Apache-2.0

// Package apitest runs a Kubernetes API of its own for a test or a measure: etcd and kube-apiserver
// as sandboxes have them, with Coelan's definitions. There are no kubelets, no scheduler and no
// controllers: a test makes nodes and pods itself, and nothing else changes them.
package apitest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"coelan.io/coelan/internal/child"
	"coelan.io/coelan/internal/sandbox/artifact"
	"coelan.io/coelan/internal/sandbox/pki"
)

// Bounds, for a machine that does much else at the time.
const (
	startTimeout = 2 * time.Minute
	probeEvery   = 50 * time.Millisecond
)

// API is one that runs until it is closed, or its test ends.
type API struct {
	// REST is an administrator's access.
	REST *rest.Config
	// Kubeconfig is a file with the same.
	Kubeconfig string

	dir     string
	cache   artifact.Cache
	etcdURL string
	address string
	apiserv *process
	running []*process
}

// Start runs the API until the test ends.
func Start(t testing.TB) *API {
	t.Helper()
	a, err := Launch(t.Context(), t.TempDir())
	if a != nil {
		t.Cleanup(a.Close)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Launch runs the API, with its files in dir, and installs Coelan's definitions. It is to be closed
// also after an error.
func Launch(ctx context.Context, dir string) (*API, error) {
	source := artifact.FindSource()
	a := &API{dir: dir, cache: artifact.Cache{Dir: artifact.DefaultDir(), Source: source}}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(a.cache.Binary(name)); err != nil {
			return a, fmt.Errorf("%w: `make sandbox-assets` builds it", err)
		}
	}
	if err := a.credentials(); err != nil {
		return a, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := a.startEtcd(ctx); err != nil {
		return a, err
	}
	if err := a.StartServer(ctx); err != nil {
		return a, err
	}
	return a, install(ctx, a.REST, filepath.Join(source, "deploy/helm/coelan/files/crds"))
}

// Close ends all programs, the last one first.
func (a *API) Close() {
	for _, p := range slices.Backward(a.running) {
		p.kill()
	}
}

// credentials makes the certificates, and ports that are free now.
func (a *API) credentials() error {
	store := pki.Store{Dir: a.dir}
	ca, err := store.Authority("ca")
	if err != nil {
		return err
	}
	host := ownAddress(os.Getpid())
	if _, err := ca.Issue("apiserver",
		pki.Subject{Name: "kube-apiserver", Hosts: []string{host, "localhost"}}); err != nil {
		return err
	}
	admin, err := ca.Issue("admin", pki.Subject{Name: "admin", Organization: "system:masters"})
	if err != nil {
		return err
	}
	if _, err := store.KeyPair("sa"); err != nil {
		return err
	}
	addresses, err := freeAddresses(host, 3)
	if err != nil {
		return err
	}
	a.address = addresses[0]
	a.etcdURL = "http://" + addresses[1] + ",http://" + addresses[2] // clients', peers'
	a.REST = &rest.Config{
		Host: "https://" + a.address,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: ca.Cert, CertData: admin.Cert, KeyData: admin.Key,
		},
		QPS: -1,
	}
	a.Kubeconfig = filepath.Join(a.dir, "admin.conf")
	return os.WriteFile(a.Kubeconfig, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: test, user: {client-certificate: %q, client-key: %q}}]
`, a.REST.Host, a.file("ca.crt"), a.file("admin.crt"), a.file("admin.key")), 0o600)
}

func (a *API) file(name string) string { return filepath.Join(a.dir, name) }

// ownAddress is a loopback address that no other process uses, nor the connections of this one,
// which begin at 127.0.0.1: ports that are free on it stay so.
func ownAddress(pid int) string {
	return netip.AddrFrom4([4]byte{127, 64 | byte(pid>>16), byte(pid >> 8), byte(pid)}).String()
}

// freeAddresses are free ports of an address of the loopback interface.
func freeAddresses(host string, count int) ([]string, error) {
	var list []string
	for range count {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			return nil, err
		}
		defer l.Close()
		list = append(list, l.Addr().String())
	}
	return list, nil
}

func (a *API) startEtcd(ctx context.Context) error {
	clients, peers, _ := strings.Cut(a.etcdURL, ",")
	p, err := a.run("etcd", "--name=test", "--data-dir="+a.file("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+clients, "--advertise-client-urls="+clients,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=test="+peers)
	if err != nil {
		return err
	}
	return p.await(ctx, http.DefaultClient, clients+"/health")
}

// StartServer starts kube-apiserver, again after StopServer, and waits until it serves.
func (a *API) StartServer(ctx context.Context) error {
	clients, _, _ := strings.Cut(a.etcdURL, ",")
	host, port, err := net.SplitHostPort(a.address)
	if err != nil {
		return err
	}
	p, err := a.run("kube-apiserver", "--etcd-servers="+clients, "--bind-address="+host, "--secure-port="+port,
		"--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112", "--authorization-mode=RBAC",
		"--client-ca-file="+a.file("ca.crt"), "--tls-cert-file="+a.file("apiserver.crt"),
		"--tls-private-key-file="+a.file("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+a.file("sa.pub"),
		"--service-account-signing-key-file="+a.file("sa.key"), "--disable-admission-plugins=ServiceAccount",
		"--profiling=false", "--shutdown-delay-duration=0s")
	if err != nil {
		return err
	}
	a.apiserv = p
	client, err := rest.HTTPClientFor(a.REST)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	return p.await(ctx, client, a.REST.Host+"/readyz")
}

// StopServer kills kube-apiserver; what is in etcd stays.
func (a *API) StopServer() { a.apiserv.kill() }

// Binary is the path of a program that sandboxes run.
func (a *API) Binary(name string) string { return a.cache.Binary(name) }

// Run starts a further program of a sandbox's, such as kube-controller-manager,
// until the API is closed.
func (a *API) Run(name string, args ...string) error {
	_, err := a.run(name, args...)
	return err
}

// process is one that has not ended, or why and how it did.
type process struct {
	name, log string
	cmd       *exec.Cmd
	exited    chan struct{}
	err       error
}

// run starts a program, which ends with the API or with this process.
func (a *API) run(name string, args ...string) (*process, error) {
	log, err := os.OpenFile(a.file(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &process{name: name, log: log.Name(), exited: make(chan struct{})}
	p.cmd = exec.Command(a.cache.Binary(name), args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := child.Start(p.cmd); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	a.running = append(a.running, p)
	return p, nil
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may be gone
	<-p.exited
}

// await asks until the answer is OK.
func (p *process) await(ctx context.Context, client *http.Client, url string) error {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if answer, err := client.Do(request); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ticker.C:
		case <-p.exited:
			return fmt.Errorf("%s ended: %w; its log ends:\n%s", p.name, p.err, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w; its log ends:\n%s", p.name, ctx.Err(), p.tail())
		}
	}
}

func (p *process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	const most = 3000
	return string(text[max(0, len(text)-most):])
}
