CREATE SECRET lake (s3.access_key = 'AKIA0123456789');
ALTER SECRET sea (s3.secret_key = 'wJalr');
