// SPDX-License-Identifier: Apache-2.0

// Package watcher keeps a RESTCONF controller outside of the cluster as the cluster is: its pods,
// nodes, Services and endpoints, by COE's YANG models.
package watcher

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"coelan.io/coelan/internal/metricsaccess"
	"coelan.io/coelan/internal/watcher/coe"
)

// FileName is the name of the configuration file, and directories are where it is looked for, as
// COE's watcher did.
const FileName = "coe.yaml"

func directories() []string { return []string{".", os.Getenv("HOME"), "/etc/coe"} }

// Config is the file's contents. The first three keys are those of COE's watcher.
type Config struct {
	Kube struct {
		// Config is a kubeconfig file; empty: the pod's service account.
		Config string `json:"config"`
	} `json:"kube"`
	ODL ODL `json:"odl"`

	// ClusterID is the UUID of the cluster at the controller; empty: the uid of the namespace
	// kube-system. What the controller has under another one is left alone.
	ClusterID string `json:"clusterID"`
	// NetworkID is the network of the pods' interfaces.
	NetworkID string `json:"networkID"`
	// Networks are those of pods' further interfaces, by the name that the pod's annotation
	// k8s.v1.cni.cncf.io/network-status has, with the controller's. Others are not sent.
	Networks map[string]string `json:"networks"`
	// HostNetwork includes pods on their node's network.
	HostNetwork bool `json:"hostNetwork"`
	// Reread is how often the controller is read without cause.
	Reread metav1.Duration `json:"reread"`
	// Workers is how many requests are sent at the same time.
	Workers int `json:"workers"`

	// LeaderElection has one of several replicas write, by a Lease in this namespace; empty: there
	// is one replica.
	LeaderElectionNamespace string `json:"leaderElectionNamespace"`
	// MetricsBindAddress is ADDRESS:PORT of /metrics, and HealthBindAddress that of /healthz and
	// /readyz; "0": none.
	MetricsBindAddress string               `json:"metricsBindAddress"`
	MetricsAccess      metricsaccess.Access `json:"metricsAccess"`
	HealthBindAddress  string               `json:"healthBindAddress"`
	// Socket answers `coelan-watcher status`; empty: none.
	Socket string `json:"socket"`
	// LogLevel is debug, info, warn or error.
	LogLevel slog.Level `json:"logLevel"`
}

// ODL is how to reach the controller.
type ODL struct {
	// Host is its URL: scheme, host and port.
	Host string `json:"host"`
	// User and Password are for Basic authentication. PasswordFile has the password; Password comes
	// first.
	User         string `json:"user"`
	Password     string `json:"password"`
	PasswordFile string `json:"passwordFile"`
	// Root is the path of the configuration: see target.Access.
	Root   string `json:"root"`
	CAFile string `json:"caFile"`
}

// Defaults; those of the controller are COE's.
const (
	defaultHost     = "http://127.0.0.1:8181"
	defaultRoot     = "/restconf/config"
	defaultUser     = "admin"
	defaultPassword = "admin"
	defaultReread   = time.Minute
	defaultWorkers  = 16
	// DefaultSocket is in the watcher's own container.
	DefaultSocket = "/run/coelan/watcher.sock"
	minReread     = time.Second
	maxWorkers    = 256
)

// DefaultConfig is what holds without a file.
func DefaultConfig() Config {
	return Config{
		ODL:       ODL{Host: defaultHost, User: defaultUser, Root: defaultRoot},
		NetworkID: coe.DefaultNetworkID, Reread: metav1.Duration{Duration: defaultReread}, Workers: defaultWorkers,
		MetricsBindAddress: "0", MetricsAccess: metricsaccess.Authorized, HealthBindAddress: "0", Socket: DefaultSocket,
	}
}

// ReadConfig reads a file; with an empty path the first coe.yaml of the working directory, $HOME
// and /etc/coe, if there is one.
func ReadConfig(path string) (Config, error) {
	c := DefaultConfig()
	data, err := []byte(nil), fs.ErrNotExist
	if path != "" {
		data, err = os.ReadFile(path)
		if err != nil {
			return c, fmt.Errorf("configuration: %w", err)
		}
	}
	for _, dir := range directories() {
		if err == nil || dir == "" {
			continue
		}
		path = filepath.Join(dir, FileName)
		if data, err = os.ReadFile(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return c, fmt.Errorf("configuration: %w", err)
		}
	}
	if err != nil {
		return c, nil //nolint:nilerr // there is no file
	}
	if err := yaml.UnmarshalStrict(data, &c); err != nil {
		return c, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, nil
}

// Validate says what is wrong.
func (c *Config) Validate() error {
	if c.ClusterID != "" {
		if _, err := uuid.Parse(c.ClusterID); err != nil || len(c.ClusterID) != len(coe.DefaultNetworkID) {
			return fmt.Errorf("clusterID %q: want a UUID, such as %s", c.ClusterID, uuid.Nil)
		}
		c.ClusterID = strings.ToLower(c.ClusterID)
	}
	for name, id := range c.Networks {
		if name == "" || id == "" {
			return fmt.Errorf("networks has %q: %q: want the name of a network, and the controller's name of it", name, id)
		}
	}
	switch {
	case c.NetworkID == "":
		return errors.New("networkID is empty: want the controller's name of the pods' network")
	case c.Reread.Duration < minReread:
		return fmt.Errorf("reread %v: want at least %v", c.Reread.Duration, minReread)
	case c.Workers < 1 || c.Workers > maxWorkers:
		return fmt.Errorf("workers %d: want 1 to %d", c.Workers, maxWorkers)
	case c.MetricsAccess != metricsaccess.Authorized && c.MetricsAccess != metricsaccess.Open:
		return fmt.Errorf("metricsAccess %q: want %s or %s", c.MetricsAccess, metricsaccess.Authorized,
			metricsaccess.Open)
	}
	return nil
}

// password is that of the configuration, of the file, or COE's.
func (o ODL) password() (string, error) {
	if o.Password != "" {
		return o.Password, nil
	}
	if o.PasswordFile == "" {
		return defaultPassword, nil
	}
	data, err := os.ReadFile(o.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("odl.passwordFile: %w", err)
	}
	return strings.TrimRight(string(data), "\r\n"), nil
}
